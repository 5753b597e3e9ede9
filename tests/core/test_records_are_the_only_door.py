"""Messages are made and taken apart beside their records, and nowhere else."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from google.protobuf.descriptor import EnumDescriptor

import assay_protos
from assay_core import records
from assay_core.records.wire import ClosedSet

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("protos/assay_core", "sampling", "agent", "server", "client")
RECORDS = ROOT / "protos/assay_core/records"
# The contract of gRPC's health service is not ours: no record has its messages, one module answers with them.
NOT_OURS = {
    "server/assay_server/rpc/server.py": ["grpc_health.v1.health_pb2"],
}


def modules_of(package: ModuleType) -> list[ModuleType]:
    names = [each.name for each in pkgutil.iter_modules(package.__path__)]
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


MESSAGES = [each for each in modules_of(assay_protos) if each.__name__.endswith("_pb2")]


def imported_messages(source: str) -> Iterator[str]:
    """The modules of messages that a module imports; stubs and servicers (..._pb2_grpc) are none."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if any(part.endswith("_pb2") for part in name.split(".")))


def test_the_search_finds_what_it_is_for() -> None:
    source = "from assay_protos import agent_pb2, agent_pb2_grpc\nimport assay_protos.common_pb2 as c\n"
    assert list(imported_messages(source)) == ["assay_protos.agent_pb2", "assay_protos.common_pb2"]
    assert list(imported_messages("from assay_protos.common_pb2 import Failure")) == [
        "assay_protos.common_pb2.Failure"
    ]


def test_only_records_know_messages() -> None:
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    assert len(files) > 300
    sources = {file: file.read_text() for file in files if RECORDS not in file.parents}
    found = {
        str(file.relative_to(ROOT)): names
        for file, source in sources.items()
        # Most have no such word: they need not be parsed.
        if "_pb2" in source and (names := list(imported_messages(source)))
    }
    assert found == NOT_OURS, "make and read these messages in assay_core.records, and use the records"


def closed_sets() -> dict[str, ClosedSet[str]]:
    """The closed sets of all records, by the name of their enumeration."""
    sets = [
        value
        for module in modules_of(records)
        for _, value in inspect.getmembers(module)
        if isinstance(value, ClosedSet)
    ]
    return {each.name: each for each in sets}


def enumerations() -> list[EnumDescriptor]:
    return [each for module in MESSAGES for each in module.DESCRIPTOR.enum_types_by_name.values()]


@pytest.mark.parametrize("enumeration", enumerations(), ids=lambda each: each.name)
def test_each_value_of_an_enumeration_has_one_of_ours_and_travels(enumeration: EnumDescriptor) -> None:
    ours = closed_sets()[enumeration.name]
    numbers = {value.name: value.number for value in enumeration.values if value.number}
    travelled = {ours.to_proto(ours.from_proto(number, "x")): number for number in numbers.values()}
    assert travelled == numbers
    assert len(list(ours.values)) == len(numbers)
