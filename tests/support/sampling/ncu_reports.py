"""Containers of Nsight Compute reports as the tool frames them, and a stand-in for their package."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PID = 4242


def varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def message(*fields: tuple[int, int | bytes | str]) -> bytes:
    """A protobuf message of whole numbers and byte strings."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(varint(number << 3) + varint(value))
        else:
            data = value.encode() if isinstance(value, str) else value
            parts.append(varint(number << 3 | 2) + varint(len(data)) + data)
    return b"".join(parts)


def sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "little") + data


def block(
    results: Sequence[bytes] = (),
    *,
    sources: Sequence[bytes] = (),
    session: bytes | None = None,
    pid: int = PID,
    host: str = "127.0.0.1",
) -> bytes:
    payload = b"".join(sized(entry) for entry in (*sources, *results))
    fields: list[tuple[int, int | bytes | str]] = [(1, len(sources)), (2, len(results))]
    if session is not None:
        fields.append((3, session))
    fields += [(5, len(payload)), (6, message((1, pid), (2, host), (3, "/bin/app")))]
    return sized(message(*fields)) + payload


def result(name: str, pid: int = PID) -> bytes:
    """A result: identity first, then as many bytes as real ones have or more."""
    return message((1, pid), (2, 7), (5, f"_Z{name}"), (6, name), (13, b"m" * 6000))


def report(
    names: Sequence[str] = ("a", "b", "c"), pids: Sequence[int] | None = None, host: str = "127.0.0.1"
) -> list[bytes]:
    """The parts of a report: file header and blocks; results stand before and after the session's facts."""
    entries = [result(name, pid) for name, pid in zip(names, pids or [PID] * len(names), strict=True)]
    version = message((1, "Nsight Compute Target"), (2, "2022.3.0.0 (build 1) (public-release)"))
    return [
        b"NVR\0" + sized(message((1, 7))),
        block(session=message((2, 1669045504)), host=host),
        block(sources=[message((1, 5), (4, b"\x7fELF"))], host=host),
        block(entries[:1], host=host),
        block(session=message((6, message((2, "NVIDIA Test")))), host=host),
        block(session=message((8, version)), host=host),
        *(block([entry], host=host) for entry in entries[1:]),
    ]


FAKE_PACKAGE = """\
import json, os, pathlib
facts = json.loads(pathlib.Path(__file__).with_suffix(".json").read_text())
if facts.get("broken"):
    raise ImportError("libsomething.so: cannot open shared object file")

class Metric:
    def __init__(self, value, unit): self._value, self._unit = value, unit
    def value(self): return self._value
    def unit(self): return self._unit
    def has_value(self): return self._value is not None

class Domain:
    def __init__(self, names): self._names = names
    def push_pop_ranges(self): return tuple(self._names)

class State:
    def __init__(self, names): self._names = names
    def domains(self): return (0,)
    def __getitem__(self, index): return Domain(self._names)

class Action:
    NameBase_FUNCTION, NameBase_DEMANGLED, NameBase_MANGLED = 0, 1, 2
    def __init__(self, fact): self._fact = fact
    def name(self, base):
        return (self._fact["name"], self._fact["name"] + "(int)", "_Z" + self._fact["name"])[base]
    def workload_type(self): return self._fact.get("kind", 0)
    def metric_by_name(self, name):
        found = self._fact["metrics"].get(name)
        return None if found is None else Metric(*found)
    def nvtx_state(self): return State(self._fact["ranges"]) if "ranges" in self._fact else None

class Range:
    def num_actions(self): return len(facts["actions"])
    def action_by_idx(self, index): return Action(facts["actions"][index])

class Context:
    def num_ranges(self): return 1
    def range_by_idx(self, index): return Range()

def load_report(path):
    if facts.get("crash"):
        os.kill(os.getpid(), 11)
    return Context()
"""


def metrics(number: int, **changed: Any) -> dict[str, Any]:
    """Metrics of one result by name, as value and unit."""
    values: dict[str, Any] = {
        f"launch__{what}_dim_{axis}": (size, "")
        for what, sizes in (("grid", (number + 1.0, 2.0, 1.0)), ("block", (256.0, 1.0, 1.0)))
        for axis, size in zip("xyz", sizes, strict=True)
    }
    values |= {
        "launch__device_id": (0.0, ""),
        "launch__stream_id": (7.0, ""),
        "device__attribute_display_name": ("NVIDIA Test", ""),
        "device__attribute_compute_capability_major": (8, ""),
        "device__attribute_compute_capability_minor": (6, ""),
        "device__attribute_multiprocessor_count": (46, ""),
        "gpc__cycles_elapsed.max": (1000.5 + number, "cycle"),
        "gpu__time_duration.sum": (2.5, "us"),
    }
    return {**values, **changed}


def fake_package(directory: Path, actions: Sequence[Mapping[str, Any]], **facts: Any) -> Path:
    """A folder with a module ``ncu_report`` that gives ``actions`` for whatever report."""
    directory.mkdir(exist_ok=True)
    (directory / "ncu_report.py").write_text(FAKE_PACKAGE)
    (directory / "ncu_report.json").write_text(json.dumps({"actions": list(actions), **facts}))
    return directory
