"""What the numbers of one attempt rest on beside the GPU: tools, libraries, the condition as it was in force.

One typed, versioned JSON object an attempt: the agent writes it, the server keeps and compares it, people
read it. It holds no process numbers, times or secrets, and stays below :data:`MOST_BYTES`.

Source: notes on Nsight Compute, Nsight Systems, MPS and NVML, sections 6 (validity of a measurement) and 8
(a library may be another one under a profiler).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

VERSION = 1
MOST_BYTES = 64 << 10
MOST_ENTRIES = 128  # of each list
LONGEST_TEXT = 400

LibraryStatus = Literal["found", "none found", "not looked at"]
ClockState = Literal["free", "locked", "refused", "virtual"]


@dataclass(frozen=True)
class ToolFact:
    """A program that took part in measuring. ``path`` is empty where it is none of the box's disk."""

    name: str
    version: str = ""
    path: str = ""


@dataclass(frozen=True)
class LibraryFact:
    """A library that a process of the run had loaded.

    Args:
        name: up to ``.so``: ``libcublas``.
        version: what follows ``.so.`` in the name of the real file; "" where nothing does.
        package: name and version of the Python package it came with; "" where it came with none.
        path: of the real file.
        size_bytes: of the file; 0 where it could not be read.
        identity: ``build-id:`` of the linker, else ``edges:`` and a hash of both ends of the file; "" where
            it could not be read.
        of_tool: whether the profiler brought it along, and not the workload.
    """

    name: str
    version: str = ""
    package: str = ""
    path: str = ""
    size_bytes: int = 0
    identity: str = ""
    of_tool: bool = False

    @property
    def said(self) -> str:
        """The version for people: that of the package where there is one, which tells more."""
        return self.package or self.version or self.identity or "unknown version"

    @property
    def build(self) -> str:
        """What tells it from another build; "" where nothing does."""
        return self.identity or self.package or self.version


@dataclass(frozen=True)
class LibraryFacts:
    """The libraries of CUDA and the frameworks on it, of all processes of a run; ``note`` for people."""

    status: LibraryStatus = "not looked at"
    found: tuple[LibraryFact, ...] = ()
    left_out: int = 0
    note: str = ""


@dataclass(frozen=True)
class ConditionFacts:
    """The condition as it was asked for, and as it was in force.

    Args:
        cache: as asked: "none", "all", or "" where that is not known.
        flush_method: how caches are flushed; "" where they are left alone.
        sm_percent: as asked; None where that is not known.
        sm_percent_in_force: as the MPS daemon says; None without one.
        effective_sms: as a probe in the run's own environment saw; None where none was asked.
        all_sms: of the whole GPU; None where that is not known.
        sm_share: "limit", or "partition" where the share was a static partition of the SMs.
        mps_daemon: "private" or "none": nobody else's is ever used.
        mps_version: of the daemon, as its program says.
        mps_program: its path.
        clock: as asked: "none", "base", "boost", or "".
        clock_state: "locked" where the lock was in force, "refused" where it could not be had.
        clock_locked_by: "NVML" or "ncu"; "" where nobody locks.
        clock_refused: why.
    """

    cache: str = ""
    flush_method: str = ""
    sm_percent: float | None = None
    sm_percent_in_force: float | None = None
    effective_sms: int | None = None
    all_sms: int | None = None
    sm_share: str = "limit"
    mps_daemon: str = "none"
    mps_version: str = ""
    mps_program: str = ""
    clock: str = ""
    clock_state: ClockState = "free"
    clock_locked_by: str = ""
    clock_refused: str = ""


@dataclass(frozen=True)
class CounterFacts:
    """Counters as asked for and as collected.

    ``collected`` maps counters to the tool's metrics; ``missing`` are those that tool or GPU have not.
    A launch was replayed between ``least_passes`` and ``most_passes`` times; None where that is not known.
    """

    asked: tuple[str, ...] = ()
    collected: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    least_passes: int | None = None
    most_passes: int | None = None


@dataclass(frozen=True)
class AttemptFacts:
    """What an attempt rests on; ``cuda`` is the version of CUDA that the driver offers, where it was asked.

    ``environment_hash``: BLAKE2b of the scrubbed environment without the agent's private folders, so that
    equal environments of two runs have equal hashes. ``recording``: the format of the file that was played
    back; "" for a live run.
    """

    synthetic: bool = False
    gpu: str = ""
    driver: str = ""
    cuda: str = ""
    recording: str = ""
    tools: tuple[ToolFact, ...] = ()
    libraries: LibraryFacts = field(default_factory=LibraryFacts)
    condition: ConditionFacts = field(default_factory=ConditionFacts)
    counters: CounterFacts = field(default_factory=CounterFacts)
    environment_hash: str = ""

    def to_json(self) -> str:
        """The object as text of at most :data:`MOST_BYTES`: texts and lists are cut to their limits.

        Where that is not enough, first the libraries' paths go, then libraries and counters.
        """
        bare = [replace(library, path="") for library in self.libraries.found]
        shorter = replace(self, libraries=replace(self.libraries, found=tuple(bare)))
        dropped = LibraryFacts(self.libraries.status, note="too many to keep")
        shortest = replace(self, libraries=dropped, counters=CounterFacts())
        texts = (_text(facts) for facts in (self, shorter, shortest))
        return next((text for text in texts if len(text.encode()) <= MOST_BYTES), "")


def parse_facts(text: str) -> AttemptFacts | None:
    """The facts of an attempt; None for "", for damaged ones, and for those of a newer format."""
    try:
        return facts_of(json.loads(text))
    except (ValueError, RecursionError):
        return None


def facts_of(document: Any) -> AttemptFacts | None:
    """The same from the object itself."""
    if not isinstance(document, dict) or document.get("version") != VERSION:
        return None
    try:
        return _read(AttemptFacts, document)
    except TypeError:
        return None


def _text(facts: AttemptFacts) -> str:
    document = {"version": VERSION, **dataclasses.asdict(facts)}
    return json.dumps(_bounded(document), sort_keys=True, ensure_ascii=False)


def _bounded(value: Any) -> Any:
    """``value`` as JSON has it, without what is over the limits."""
    if isinstance(value, str):
        # A lone surrogate, as in a file name that is no text, cannot be written as UTF-8.
        value = value.encode(errors="replace").decode()
        return value if len(value) <= LONGEST_TEXT else f"{value[: LONGEST_TEXT - 3]}..."
    if isinstance(value, Mapping):
        return {_bounded(str(key)): _bounded(each) for key, each in [*value.items()][:MOST_ENTRIES]}
    if isinstance(value, list | tuple):
        return [_bounded(each) for each in value[:MOST_ENTRIES]]
    return value


Kind = TypeVar("Kind")


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _read(kind: type[Kind], value: Any) -> Kind:
    """A data class from plain values: keys that it does not know are passed over, missing ones are default.

    Raises TypeError for a value that is not of its field's type.
    """
    if not isinstance(value, dict):
        raise TypeError(kind.__name__)
    hints = _hints(kind)  # type: ignore[arg-type]
    return kind(**{name: _value(hint, value[name]) for name, hint in hints.items() if name in value})


def _value(hint: Any, value: Any) -> Any:
    """A value of the type that a hint names; raises TypeError."""
    if dataclasses.is_dataclass(hint):
        return _read(hint, value)  # type: ignore[arg-type]
    if get_origin(hint) is not None:
        return _composed(get_origin(hint), get_args(hint), value)
    if hint is float and type(value) is int:
        return float(value)
    # Not isinstance: a truth value is no number.
    if type(value) is not hint:
        raise TypeError(f"{value!r:.80} is no {hint}")
    return value


def _composed(origin: Any, inner: tuple[Any, ...], value: Any) -> Any:
    if origin is UnionType:
        return None if value is None and NoneType in inner else _value(inner[0], value)
    if origin is tuple and isinstance(value, list):
        return tuple(_value(inner[0], each) for each in value)
    if origin is Literal and value in inner:
        return value
    if origin is Mapping and isinstance(value, dict):
        return {_value(inner[0], key): _value(inner[1], each) for key, each in value.items()}
    raise TypeError(f"{value!r:.80} is no {origin}")
