"""The workload file: what a program launches on a virtual GPU, declared in TOML (docs/virtual-gpu.md).

Every number describes the program, not a GPU: instructions and accesses of one *warp*, bytes of buffers,
grids. :mod:`assay_virtual.model.gpu` computes what a GPU does with them.
"""

# ruff: noqa: RUF009 - key() makes a field, as dataclasses.field does
from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from assay_virtual.architectures import COMPUTE_CAPABILITIES
from assay_virtual.workloads.checked import (
    Fault,
    Part,
    boolean,
    key,
    listed,
    mapped,
    number,
    read_some,
    read_table,
    table_of,
    text,
    whole,
)

ASYNC_COPY_BYTES = 512  # a warp copies 16 bytes a thread
_UNITS = {"B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}

Dimensions = tuple[int, int, int]
Key = tuple[Part, ...]

_bytes = whole(0, 1 << 40)
_extent = whole(1, (1 << 31) - 1)
_share = number(above=0, greatest=1)
_per_warp = number(0, 1e9)
_sectors = number(1, 32)
_spread = number(0, 0.5)
_text = text(4000)
_name = text(4000, least=0)


def _size(value: Any, at: Key) -> int:
    """Bytes: a number, or a text with a unit."""
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(B|KiB|MiB|GiB)", value.strip(), re.IGNORECASE)
        if match is None:
            raise Fault(at, 'a size is a whole number of bytes, or a text such as "24 MiB"')
        value = round(float(match[1]) * _UNITS[match[2].upper()])
    return int(_bytes(value, at))


def _dimensions(value: Any, at: Key) -> Dimensions:
    """A number of blocks or threads in one to three dimensions, always as three."""
    values = [value] if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(values, list) or not 1 <= len(values) <= 3:
        raise Fault(at, "Input should be a number, or a tuple of one to three numbers")
    x, y, z = (_extent(extent, (*at, axis)) for axis, extent in enumerate([*values, 1, 1][:3]))
    return x, y, z


def _block(value: Any, at: Key) -> Dimensions:
    block = _dimensions(value, at)
    if block[0] * block[1] * block[2] > 1024 or block[2] > 64:
        raise Fault(at, "a block has at most 1024 threads, 64 of them in z")
    return block


def _grids(value: Any, at: Key) -> list[Dimensions]:
    """One grid, or one grid for each iteration of the enclosing loop."""
    table = value if isinstance(value, list) and any(isinstance(row, list) for row in value) else [value]
    return [_dimensions(row, (*at, index)) for index, row in enumerate(table)]


def _anything(value: Any, at: Key) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Fault(at, "Input should be a table")
    return value


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel. Counts are instructions that a warp executes; ``reads`` and ``writes`` name buffers and
    the share of each, from its beginning, that a launch touches."""

    name: str = key(_text)
    block: Dimensions = key(_block)
    registers: int = key(whole(1, 255), 32)
    static_shared_bytes: int = key(_size, 0)
    dynamic_shared_bytes: int = key(_size, 0)
    instructions: float = key(number(above=0, greatest=1e9))
    warp_instructions_per_cycle: float = key(_share, 0.25)
    active_threads: float = key(_sectors, 32.0)
    global_loads: float = key(_per_warp, 0.0)
    generic_loads: float = key(_per_warp, 0.0)
    global_stores: float = key(_per_warp, 0.0)
    global_atomics: float = key(_per_warp, 0.0)
    local_loads: float = key(_per_warp, 0.0)
    local_stores: float = key(_per_warp, 0.0)
    shared_loads: float = key(_per_warp, 0.0)
    shared_stores: float = key(_per_warp, 0.0)
    async_copies: float = key(_per_warp, 0.0)
    tensor_copies: float = key(_per_warp, 0.0)
    tensor_copy_bytes: int = key(_size, 4096)
    sectors_per_load: float = key(_sectors, 4.0)
    sectors_per_store: float = key(_sectors, 4.0)
    l1_hit_percent: float = key(number(0, 100), 0.0)
    grid_factor: float = key(number(above=0, greatest=1024), 1.0)
    reads: dict[str, float] = key(mapped(_share), {})
    writes: dict[str, float] = key(mapped(_share), {})
    variants: dict[str, dict[str, Any]] = key(mapped(_anything, COMPUTE_CAPABILITIES), {})

    def __post_init__(self) -> None:
        counted = (
            self.global_loads + self.generic_loads + self.global_stores + self.global_atomics
            + self.local_loads + self.local_stores + self.shared_loads + self.shared_stores
            + self.async_copies + self.tensor_copies
        )  # fmt: skip
        if counted > self.instructions:
            raise ValueError(f"{counted:g} memory instructions do not fit into {self.instructions:g} in all")
        if "variants" in {key for fields in self.variants.values() for key in fields}:
            raise ValueError("a variant cannot have variants")

    def on(self, compute_capability: str) -> Kernel:
        """The kernel as it is built for that architecture: its variant, with copies that exist there.

        Without a tensor memory accelerator (before 9.0) bulk copies are asynchronous copies of 512 bytes a
        warp; without those (before 8.0), loads and stores to shared memory. Raises Fault for an invalid
        variant.
        """
        built = {field.name: getattr(self, field.name) for field in fields(self)}
        built |= read_some(Kernel, self.variants.get(compute_capability, {})) | {"variants": {}}
        bulk, copies = built["tensor_copies"], built["async_copies"]
        if float(compute_capability) < 9.0 and bulk:
            more = bulk * built["tensor_copy_bytes"] / ASYNC_COPY_BYTES
            copies += more
            built["instructions"] += more - bulk
            built["tensor_copies"] = 0.0
        if float(compute_capability) < 8.0 and copies:
            built["shared_stores"] += copies
            built["instructions"] += copies
            # Sixteen bytes per thread are sixteen sectors per warp, independent of the other loads.
            loads, sectors = built["global_loads"], built["sectors_per_load"]
            built["sectors_per_load"] = (loads * sectors + copies * 16) / (loads + copies)
            built["global_loads"] = loads + copies
            copies = 0.0
        try:
            return Kernel(**{**built, "async_copies": copies})
        except ValueError as error:
            raise Fault((), str(error)) from error


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A number drawn for each iteration of the loop that declares it.

    One of ``choices`` (with ``probabilities``; ``hold`` is the chance that the last one stays) or
    ``spread`` (lognormal with median 1 and that sigma).
    """

    choices: list[float] = key(listed(number(above=0, greatest=1e6)), [])
    probabilities: list[float] = key(listed(number(0, 1)), [])
    hold: float = key(number(0, below=1), 0.0)
    spread: float = key(_spread, 0.0)

    def __post_init__(self) -> None:
        if bool(self.choices) == bool(self.spread):
            raise ValueError("give either choices or spread")
        if self.probabilities and len(self.probabilities) != len(self.choices):
            raise ValueError(f"{len(self.probabilities)} probabilities for {len(self.choices)} choices")
        if self.probabilities and abs(sum(self.probabilities) - 1.0) > 1e-6:
            raise ValueError(f"the probabilities add up to {sum(self.probabilities):g}, not to 1")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A launch, ``times`` over. ``grid`` is one grid or a table with one for each iteration of the
    enclosing loop (starting over at its end); ``work`` multiplies the work of a warp. ``grid_by`` and
    ``work_by`` name variables that multiply the grid's x and the work; ``work_spread`` varies the work of
    each launch. ``input_shapes`` may hold ``{variable}`` or ``{8*variable}``."""

    kernel: str = key(_name)
    grid: list[Dimensions] = key(_grids)
    times: int = key(whole(1), 1)
    grid_by: str | None = key(_name, None)
    work: float = key(number(above=0, greatest=1e6), 1.0)
    work_by: str | None = key(_name, None)
    work_spread: float = key(_spread, 0.0)
    stream: int = key(whole(0, 1 << 20), 7)
    operator: str | None = key(_text, None)
    input_shapes: str | None = key(_text, None)


@dataclass(frozen=True, kw_only=True)
class Operator:
    """An operator, such as a framework's or a library's: a call of it makes the launches of ``steps``, or on
    the architectures of ``variants`` others, in another number. ``input_shapes`` as of :class:`Launch`."""

    name: str = key(_text)
    input_shapes: str | None = key(_text, None)
    steps: list[Launch] = key(listed(table_of(Launch), 1))
    variants: dict[str, list[Launch]] = key(mapped(listed(table_of(Launch), 1), COMPUTE_CAPABILITIES), {})


@dataclass(frozen=True, kw_only=True)
class Call:
    """``times`` calls of an operator, by its key."""

    call: str = key(_name)
    times: int = key(whole(1), 1)


def _step(value: Any, at: Key) -> Launch | Call | Loop:
    """A table with steps is a loop, one with a call the call of an operator, any other a launch."""
    if isinstance(value, dict) and "steps" in value:
        return read_table(Loop, value, at)
    if isinstance(value, dict) and "call" in value:
        return read_table(Call, value, at)
    return read_table(Launch, value, at)


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Steps, ``repeat`` times. ``nvtx`` opens a range for each iteration; ``graph`` makes each iteration
    one graph launch; ``host_ns`` is what the processor does before each; ``synchronize`` lets it wait for
    the GPU first; ``thread`` of the process makes the calls (default: that of the loop around);
    ``processes`` limits the loop to some ranks. ``operator``: each iteration is one call of it."""

    steps: list[Launch | Call | Loop] = key(listed(_step, 1))
    repeat: int = key(whole(1), 1)
    nvtx: str | None = key(_text, None)
    graph: bool = key(boolean, False)
    host_ns: int = key(whole(0, 10**12), 0)
    synchronize: bool = key(boolean, False)
    variables: dict[str, Variable] = key(mapped(table_of(Variable)), {})
    thread: int | None = key(whole(0, 63), None)
    processes: list[int] | None = key(listed(whole(0)), None)
    operator: Operator | None = None

    def launches(self, process: int) -> int:
        """How many launches a process makes in all iterations, of a loop built for an architecture."""
        if self.processes is not None and process not in self.processes:
            return 0
        return self.repeat * sum(_launches(step, process) for step in self.steps)

    def on(self, compute_capability: str, operators: dict[str, Operator]) -> Loop:
        """The loop as it runs on that architecture: calls of operators become loops of their launches."""
        return replace(self, steps=[_built(step, compute_capability, operators) for step in self.steps])


def _launches(step: Launch | Call | Loop, process: int) -> int:
    assert not isinstance(step, Call), "the loop is not built for an architecture"
    return step.times if isinstance(step, Launch) else step.launches(process)


def _built(
    step: Launch | Call | Loop, compute_capability: str, operators: dict[str, Operator]
) -> Launch | Loop:
    if isinstance(step, Loop):
        return step.on(compute_capability, operators)
    if isinstance(step, Launch):
        return step
    operator = operators[step.call]
    launches = operator.variants.get(compute_capability, operator.steps)
    return Loop(steps=[*launches], repeat=step.times, operator=operator)


@dataclass(frozen=True, kw_only=True)
class Autotune:
    """Deliberate nondeterminism: under a profiler, the first ``launches`` of ``kernel`` in each process
    are its ``candidates`` in turn, so that levels no longer hold the same launches."""

    kernel: str = key(_name)
    candidates: list[str] = key(listed(_name, 1))
    launches: int = key(whole(1))
    enabled: bool = key(boolean, True)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A program and its input. ``path`` is the file it was read from; ``helpers`` are processes that launch
    nothing."""

    workload: str = key(text(100, r"[A-Za-z0-9._-]+"))
    description: str = key(_name, "")
    seed: int = key(whole(0, below=1 << 63), 0)
    processes: int = key(whole(1, 64), 1)
    helpers: int = key(whole(0, 64), 0)
    launch_interval_ns: int = key(whole(4000, 10**9), 5000)
    buffers: dict[str, int] = key(mapped(_size), {})
    kernels: dict[str, Kernel] = key(mapped(table_of(Kernel)))
    operators: dict[str, Operator] = key(mapped(table_of(Operator)), {})
    phases: list[Loop] = key(listed(table_of(Loop), 1))
    autotune: Autotune | None = key(table_of(Autotune), None)
    path: Path = Path()

    def __post_init__(self) -> None:
        if not self.kernels:
            raise ValueError("there must be at least 1 kernel")

    def phases_on(self, compute_capability: str) -> list[Loop]:
        """The phases as they run on that architecture, without calls."""
        return [phase.on(compute_capability, self.operators) for phase in self.phases]

    def launches(self, process: int, compute_capability: str) -> int:
        """How many launches a process makes on that architecture."""
        return sum(phase.launches(process) for phase in self.phases_on(compute_capability))


_IN_BRACES = re.compile(r"\{(?:(\d+)\*)?([^{}*]+)\}")


def variables_of(input_shapes: str | None) -> list[str]:
    """The variables that a text of input shapes names in braces."""
    return [name for _, name in _IN_BRACES.findall(input_shapes or "")]


def with_variables(input_shapes: str, values: Mapping[str, float]) -> str:
    """A text of input shapes with whole numbers in place of its braces."""
    return _IN_BRACES.sub(lambda match: str(round(int(match[1] or 1) * values[match[2]])), input_shapes)
