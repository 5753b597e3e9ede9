"""The facts behind one attempt's numbers besides the GPU: tools, libraries, the condition in force.

One typed, versioned JSON object an attempt: the agent writes it, the server keeps and compares it, people
read it. It holds no process numbers, times or secrets, and stays below :data:`MOST_BYTES`.

Source: docs/nvidia-tools.md, "What makes two measurements comparable".
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

VERSION = 1
MOST_BYTES = 64 << 10
MOST_ENTRIES = 128  # of each list
LONGEST_TEXT = 400

LibraryStatus = Literal["found", "none found", "not looked at"]
ClockState = Literal["free", "locked", "refused", "virtual"]


@dataclass(frozen=True)
class ToolFact:
    """A program that took part in measuring. ``path`` is empty for one that is not on the box's disk."""

    name: str
    version: str = ""
    path: str = ""


@dataclass(frozen=True)
class ProgramFact:
    """The program of a live run: the first word of its command; on a virtual GPU, the workload file.

    Args:
        path: links followed; of a submitter's file, its path in the bundle; "" where nothing was started.
        size_bytes: of the file; 0 where it could not be opened.
        sha256: of the file; "" where it was not read, or did not stay the same until the run had ended.
        note: why there is no hash, for people.
    """

    path: str = ""
    size_bytes: int = 0
    sha256: str = ""
    note: str = ""


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
    def label(self) -> str:
        """The version for people: the package's where there is one, because it says more."""
        return self.package or self.version or self.identity or "unknown version"

    @property
    def build(self) -> str:
        """An identifier of this build; "" where there is none."""
        return self.identity or self.package or self.version


@dataclass(frozen=True)
class LibraryFacts:
    """The libraries of CUDA and of frameworks on it, in all processes of a run; ``note`` is for people."""

    status: LibraryStatus = "not looked at"
    found: tuple[LibraryFact, ...] = ()
    left_out: int = 0
    note: str = ""


@dataclass(frozen=True)
class ConditionFacts:
    """The condition as requested, and as it was in force.

    Args:
        cache: as requested: "none", "all", or "" where that is not known.
        flush_method: how caches are flushed; "" where they are left alone.
        sm_percent: as requested; None where that is not known.
        sm_percent_in_force: as the MPS daemon says; None without one.
        effective_sms: as a probe in the run's own environment saw; None without a probe.
        all_sms: of the whole GPU; None where that is not known.
        sm_share: "limit", or "partition" where the share was a static partition of the SMs.
        mps_daemon: "private" or "none": another user's is never used.
        mps_version: of the daemon, as its program prints it.
        mps_program: path of the daemon's program.
        clock: as requested: "none", "base", "boost", or "".
        clock_state: "locked" where the lock was in force, "refused" where it failed.
        clock_locked_by: "NVML" or "ncu"; "" without a lock.
        clock_refused: why the lock failed.
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
    """Counters as requested and as collected.

    ``collected`` maps counters to the tool's metrics; ``missing`` are those that the tool or the GPU lacks.
    A launch was replayed between ``least_passes`` and ``most_passes`` times; None where that is not known.
    """

    asked: tuple[str, ...] = ()
    collected: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    least_passes: int | None = None
    most_passes: int | None = None


@dataclass(frozen=True)
class AttemptFacts:
    """The facts behind an attempt; ``cuda`` is the CUDA version that the driver offers, where it was asked.

    ``environment_hash``: BLAKE2b of the scrubbed environment without the agent's private folders, so that
    equal environments have equal hashes in two runs. ``recording``: the format of the file that was played
    back; "" for a live run. ``bundle``: the SHA-256 of the submitter's files that it ran; "" without any.
    ``program``: the file that was run; empty for recordings. ``compile_cache``: the hash of the compiled code
    that it began with, kept from the command's first run on that agent; "" where it began with none.
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
    bundle: str = ""
    program: ProgramFact = field(default_factory=ProgramFact)
    compile_cache: str = ""

    def to_json(self) -> str:
        """The object as text of at most :data:`MOST_BYTES`: texts and lists are cut to their limits.

        If that is still too long, it first drops the libraries' paths, then libraries and counters.
        """
        bare = [replace(library, path="") for library in self.libraries.found]
        shorter = replace(self, libraries=replace(self.libraries, found=tuple(bare)))
        dropped = LibraryFacts(self.libraries.status, note="too many to keep")
        shortest = replace(self, libraries=dropped, counters=CounterFacts())
        texts = (_text(facts) for facts in (self, shorter, shortest))
        return next((text for text in texts if len(text.encode()) <= MOST_BYTES), "")


def parse_facts(text: str) -> AttemptFacts | None:
    """The facts of an attempt; None for "", for damaged facts, and for those of a newer format.

    Unknown keys are ignored, missing ones get their default.
    """
    try:
        if _version().validate_json(text, strict=True).version != VERSION:
            return None
        return _facts().validate_json(text, strict=True)
    except ValidationError:
        return None


def facts_of(document: Any) -> AttemptFacts | None:
    """The facts from the parsed JSON object; see :func:`parse_facts`."""
    try:
        return parse_facts(json.dumps(document))
    except (TypeError, ValueError, RecursionError):
        return None


@dataclass(frozen=True)
class _Version:
    version: int


@cache
def _version() -> TypeAdapter[_Version]:
    return TypeAdapter(_Version)


@cache
def _facts() -> TypeAdapter[AttemptFacts]:
    return TypeAdapter(AttemptFacts)


def _text(facts: AttemptFacts) -> str:
    document = {"version": VERSION, **dataclasses.asdict(facts)}
    return json.dumps(_bounded(document), sort_keys=True, ensure_ascii=False)


def _bounded(value: Any) -> Any:
    """``value`` as JSON, cut to the limits."""
    if isinstance(value, str):
        # A lone surrogate, as in a file name that is not UTF-8, cannot be written as UTF-8.
        value = value.encode(errors="replace").decode()
        return value if len(value) <= LONGEST_TEXT else f"{value[: LONGEST_TEXT - 3]}..."
    if isinstance(value, Mapping):
        return {_bounded(str(key)): _bounded(each) for key, each in [*value.items()][:MOST_ENTRIES]}
    if isinstance(value, list | tuple):
        return [_bounded(each) for each in value[:MOST_ENTRIES]]
    return value
