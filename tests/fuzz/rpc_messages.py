"""Random messages for every RPC of a real server: none may end in an error that is not typed.

python -m tests.fuzz.rpc_messages [--inputs N] [--seed N]
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from assay_protos import (
    agent_pb2,
    archive_pb2,
    bundle_pb2,
    campaign_pb2,
    identity_pb2,
    ingest_pb2,
    lab_pb2,
    records_pb2,
)
from assay_server.app import Server
from assay_server.config import ServerSettings
from tests.fuzz.mutations import mutate_bytes
from tests.support.server.server_support import CAMPAIGN, StandInExecutor

FILES = (
    agent_pb2, archive_pb2, bundle_pb2, campaign_pb2, identity_pb2, ingest_pb2, lab_pb2, records_pb2,
)  # fmt: skip
UNTYPED = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)
_TEXTS = (
    "", "made-1", "made-1.0000", "agent-1", "session-1", "recorded-0", "x" * 5000, "../../etc", "a/b", "\0",
    "\u2028", "{}", '{"a": [', "-1", "é", CAMPAIGN,
)  # fmt: skip
_NUMBERS = (0, 1, -1, 2, 3, 7, 1000, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**64 - 1)
_MOST_DEEP = 4
_SECONDS = 0.5  # calls that wait for news end here


def methods() -> Iterator[MethodDescriptor]:
    """Every RPC of ours, by the descriptors."""
    for file in FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            yield from service.methods


def random_message(kind: Descriptor, random: Random, depth: int = 0) -> Message:
    """A message of this kind, with values that are often out of bounds."""
    message = GetMessageClass(kind)()
    for item in kind.fields:
        if random.random() < 0.25 or depth > _MOST_DEEP:
            continue
        if item.message_type is not None and item.message_type.GetOptions().map_entry:
            continue
        values = [_value(item, random, depth) for _ in range(random.choice((0, 1, 1, 3)))]
        if item.is_repeated:
            getattr(message, item.name).extend(values)
        elif values and item.message_type is not None:
            getattr(message, item.name).CopyFrom(values[0])
        elif values:
            setattr(message, item.name, values[0])
    return message


def _value(item: FieldDescriptor, random: Random, depth: int) -> Any:
    if item.message_type is not None:
        return random_message(item.message_type, random, depth + 1)
    if item.enum_type is not None:
        return random.choice([*(value.number for value in item.enum_type.values), 99])
    if item.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        text = random.choice(_TEXTS)
        return text.encode() if item.type == FieldDescriptor.TYPE_BYTES else text
    if item.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return random.random() < 0.5
    if item.cpp_type in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return random.choice((0.0, -1.0, 1e308, float("inf"), float("nan")))
    least, most = _BOUNDS[item.cpp_type]
    return random.choice([n for n in _NUMBERS if least <= n <= most])


_BOUNDS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def random_bytes(method: MethodDescriptor, random: Random) -> bytes:
    """A message for an RPC as bytes; one of four is damaged."""
    data = random_message(method.input_type, random).SerializeToString()
    return mutate_bytes(data, random) if data and random.random() < 0.25 else data


def outcome(channel: grpc.Channel, method: MethodDescriptor, messages: list[bytes]) -> tuple[Any, str]:
    """The status of one call with these messages, and its text."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    given: Any = iter(messages) if method.client_streaming else messages[0]
    kind = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }[method.client_streaming, method.server_streaming]
    try:
        answer = kind(path)(given, timeout=_SECONDS)
        if method.server_streaming:
            list(answer)
    except grpc.RpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


def failures(inputs: int, seed: int, only: str = "") -> tuple[list[str], Counter[str]]:
    """Feed every RPC so many inputs; the untyped errors, each with how to see it again, and all outcomes."""
    found: list[str] = []
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="assay-fuzz-") as folder:
        address = f"unix:{Path(folder) / 'socket'}"
        settings = ServerSettings(state_dir=Path(folder) / "state", listen=(address,))
        server = Server(settings, make_executor=StandInExecutor)
        with server, grpc.insecure_channel(address) as channel:
            for method in methods():
                if only and method.name != only:
                    continue
                for number in range(inputs):
                    random = Random(f"{seed} {method.full_name} {number}")
                    messages = [random_bytes(method, random) for _ in range(random.choice((1, 1, 2, 4)))]
                    code, said = outcome(channel, method, messages)
                    outcomes[code.name] += 1
                    if code in UNTYPED:
                        found.append(f"{method.full_name}, seed {seed}, input {number}: {code.name} {said}")
    return found, outcomes


def main() -> None:
    """Print every untyped error; the exit status is 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="the name of one RPC")
    arguments = parser.parse_args()
    found, outcomes = failures(arguments.inputs, arguments.seed, arguments.only)
    print(*found, dict(outcomes), sep="\n")
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()
