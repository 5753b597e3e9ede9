"""The workload file: what a program launches on a virtual GPU, declared in TOML (docs/virtual-gpu.md).

Every number is of the program, not of a GPU: instructions and accesses that one *warp* makes, bytes of
buffers, grids. What a GPU makes of them is :mod:`assay_agent.virtual.gpu`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

_UNITS = {"B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
ASYNC_COPY_BYTES = 512  # a warp copies 16 bytes a thread


def _bytes_of(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(B|KiB|MiB|GiB)", value.strip(), re.IGNORECASE)
    if found is None:
        raise ValueError('a size is a whole number of bytes, or a text such as "24 MiB"')
    return round(float(found[1]) * _UNITS[found[2].upper()])


def _three(value: Any) -> Any:
    """A number of blocks or threads in one to three dimensions, always as three."""
    values = [value] if isinstance(value, int) else value
    if isinstance(values, list) and 1 <= len(values) <= 3:
        return (*values, *[1] * (3 - len(values)))
    return value


def _table(value: Any) -> Any:
    """One grid, or one grid for each iteration of the loop around."""
    if isinstance(value, list) and any(isinstance(row, list) for row in value):
        return value
    return [value]


def _threads_fit(block: tuple[int, int, int]) -> tuple[int, int, int]:
    if block[0] * block[1] * block[2] > 1024 or block[2] > 64:
        raise ValueError("a block has at most 1024 threads, 64 of them in z")
    return block


Size = Annotated[int, BeforeValidator(_bytes_of), Field(ge=0, le=1 << 40)]
Extent = Annotated[int, Field(ge=1, le=(1 << 31) - 1)]
Dimensions = Annotated[tuple[Extent, Extent, Extent], BeforeValidator(_three)]
Block = Annotated[Dimensions, AfterValidator(_threads_fit)]
PerWarp = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Sectors = Annotated[float, Field(ge=1, le=32, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Spread = Annotated[float, Field(ge=0, le=0.5, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1, max_length=4000)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Kernel(_Strict):
    """A kernel. Counts are warp instructions a warp executes; ``reads`` and ``writes`` name buffers and
    the share of each, from its beginning, that a launch touches."""

    name: Text
    block: Block
    registers: Annotated[int, Field(ge=1, le=255)] = 32
    static_shared_bytes: Size = 0
    dynamic_shared_bytes: Size = 0
    instructions: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
    warp_instructions_per_cycle: Share = 0.25
    active_threads: Sectors = 32.0
    global_loads: PerWarp = 0.0
    generic_loads: PerWarp = 0.0
    global_stores: PerWarp = 0.0
    global_atomics: PerWarp = 0.0
    local_loads: PerWarp = 0.0
    local_stores: PerWarp = 0.0
    shared_loads: PerWarp = 0.0
    shared_stores: PerWarp = 0.0
    async_copies: PerWarp = 0.0
    tensor_copies: PerWarp = 0.0
    tensor_copy_bytes: Size = 4096
    sectors_per_load: Sectors = 4.0
    sectors_per_store: Sectors = 4.0
    l1_hit_percent: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 0.0
    grid_factor: Annotated[float, Field(gt=0, le=1024, allow_inf_nan=False)] = 1.0
    reads: dict[str, Share] = {}
    writes: dict[str, Share] = {}
    variants: dict[Literal["7.0", "7.5", "8.0", "8.6", "9.0"], dict[str, Any]] = {}

    @model_validator(mode="after")
    def _counts_fit(self) -> Kernel:
        counted = (
            self.global_loads + self.generic_loads + self.global_stores + self.global_atomics
            + self.local_loads + self.local_stores + self.shared_loads + self.shared_stores
            + self.async_copies + self.tensor_copies
        )  # fmt: skip
        if counted > self.instructions:
            raise ValueError(f"{counted:g} memory instructions do not fit into {self.instructions:g} in all")
        if "variants" in {key for fields in self.variants.values() for key in fields}:
            raise ValueError("a variant has no variants")
        return self

    def on(self, compute_capability: str) -> Kernel:
        """The kernel as it is built for that architecture: its variant, with copies that exist there.

        Without a tensor memory accelerator (before 9.0) bulk copies are asynchronous copies of 512 bytes a
        warp; without those (before 8.0), loads and stores to shared memory.
        """
        fields = {**self.model_dump(exclude={"variants"}), **_variant(self, compute_capability)}
        bulk, copies = fields["tensor_copies"], fields["async_copies"]
        if float(compute_capability) < 9.0 and bulk:
            more = bulk * fields["tensor_copy_bytes"] / ASYNC_COPY_BYTES
            copies += more
            fields["instructions"] += more - bulk
            fields["tensor_copies"] = 0.0
        if float(compute_capability) < 8.0 and copies:
            fields["shared_stores"] += copies
            fields["instructions"] += copies
            # Sixteen bytes a thread are sixteen sectors a warp, whatever the other loads are.
            loads, sectors = fields["global_loads"], fields["sectors_per_load"]
            fields["sectors_per_load"] = (loads * sectors + copies * 16) / (loads + copies)
            fields["global_loads"] = loads + copies
            copies = 0.0
        return Kernel.model_validate({**fields, "async_copies": copies})


def _variant(kernel: Kernel, compute_capability: str) -> dict[str, Any]:
    return next((v for k, v in kernel.variants.items() if k == compute_capability), {})


class Variable(_Strict):
    """A number drawn for each iteration of the loop that declares it.

    One of ``choices`` (with ``probabilities``; ``hold`` is the chance that the last one stays) or
    ``spread`` (lognormal with median 1 and that sigma).
    """

    choices: list[Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]] = []
    probabilities: list[Annotated[float, Field(ge=0, le=1)]] = []
    hold: Annotated[float, Field(ge=0, lt=1)] = 0.0
    spread: Spread = 0.0

    @model_validator(mode="after")
    def _one_kind(self) -> Variable:
        if bool(self.choices) == bool(self.spread):
            raise ValueError("give either choices or spread")
        if self.probabilities and len(self.probabilities) != len(self.choices):
            raise ValueError(f"{len(self.probabilities)} probabilities for {len(self.choices)} choices")
        if self.probabilities and abs(sum(self.probabilities) - 1.0) > 1e-6:
            raise ValueError(f"the probabilities add up to {sum(self.probabilities):g}, not to 1")
        return self


class Launch(_Strict):
    """A launch, ``times`` over. ``grid`` is one grid or a table with one for each iteration of the loop
    around (again from the top after its end); ``work`` multiplies what a warp does. ``grid_by`` and
    ``work_by`` name variables that multiply the grid's x and the work; ``work_spread`` varies the work of
    each launch."""

    kernel: str
    grid: Annotated[list[Dimensions], BeforeValidator(_table), Field(min_length=1)]
    times: Annotated[int, Field(ge=1)] = 1
    grid_by: str | None = None
    work: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 1.0
    work_by: str | None = None
    work_spread: Spread = 0.0
    stream: Annotated[int, Field(ge=0, le=1 << 20)] = 7
    operator: Text | None = None
    input_shapes: Text | None = None


class Loop(_Strict):
    """Steps, ``repeat`` times. ``nvtx`` opens a range for each iteration; ``graph`` makes each iteration
    one graph launch; ``host_ns`` is what the processor does before each; ``synchronize`` lets it wait for
    the GPU first; ``processes`` limits the loop to some ranks."""

    steps: Annotated[list[Step], Field(min_length=1)]
    repeat: Annotated[int, Field(ge=1)] = 1
    nvtx: Text | None = None
    graph: bool = False
    host_ns: Annotated[int, Field(ge=0, le=10**12)] = 0
    synchronize: bool = False
    variables: dict[str, Variable] = {}
    processes: list[Annotated[int, Field(ge=0)]] | None = None

    def launches(self, process: int) -> int:
        """How many launches that process makes in all iterations."""
        if self.processes is not None and process not in self.processes:
            return 0
        inner = (s.times if isinstance(s, Launch) else s.launches(process) for s in self.steps)
        return self.repeat * sum(inner)


def _kind_of_step(value: Any) -> str:
    return "loop" if isinstance(value, Loop) or (isinstance(value, dict) and "steps" in value) else "launch"


Step = Annotated[
    Annotated[Launch, Tag("launch")] | Annotated[Loop, Tag("loop")], Discriminator(_kind_of_step)
]


class Autotune(_Strict):
    """Nondeterminism on purpose: under a profiler, the first ``launches`` of ``kernel`` in each process
    are its ``candidates`` in turn, so that levels no longer hold the same launches."""

    kernel: str
    candidates: Annotated[list[str], Field(min_length=1)]
    launches: Annotated[int, Field(ge=1)]
    enabled: bool = True


class Workload(_Strict):
    """A program and its input. ``path`` is the file it was read from."""

    workload: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=100)]
    description: str = ""
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 0
    processes: Annotated[int, Field(ge=1, le=64)] = 1
    launch_interval_ns: Annotated[int, Field(ge=4000, le=10**9)] = 5000
    buffers: dict[str, Size] = {}
    kernels: Annotated[dict[str, Kernel], Field(min_length=1)]
    phases: Annotated[list[Loop], Field(min_length=1)]
    autotune: Autotune | None = None
    path: Path = Field(default=Path(), exclude=True)

    def launches(self, process: int) -> int:
        """How many launches that process makes; the same on every GPU."""
        return sum(phase.launches(process) for phase in self.phases)
