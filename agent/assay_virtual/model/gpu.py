"""The virtual GPU: executes a workload file and gives its launches with their times and counters.

Every number is computed by the documented model (docs/virtual-gpu.md), is the same on every machine, and is
marked ``synthetic``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay_sampling.errors import ParameterError
from assay_sampling.running.identity import BASELINE, Condition, Device, Level
from assay_virtual.architectures import SMS_PER_TPC, architecture
from assay_virtual.model.counting import Clocks, counters_of
from assay_virtual.model.demand import Demand, demand_of
from assay_virtual.model.operators import OperatorCalls, none
from assay_virtual.model.randomness import drift, key_of, lognormal
from assay_virtual.model.sequence import Sequence, launch_sequence
from assay_virtual.model.timeline import NvtxRanges, nvtx_ranges, timed_operators, timeline
from assay_virtual.model.timing import Timing, time_of
from assay_virtual.workloads.workload import Kernel, Workload

if TYPE_CHECKING:
    from assay_sampling.launches.table import TableMetadata

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FREE_RUNNING_SIGMA = 0.015
PROFILED_SIGMA = 0.003
GPC_SIGMA = 0.2
BOOST_DRIFT_SHARE = 0.03
_FIRST_CALL_NS, _NEXT_PROCESS_NS = 1_000_000, 250_000
_CARRIED = (
    "kernel", "grid", "stream", "nvtx", "operator", "input_shapes", "graph_launch", "graph_node", "call",
    "thread",
)  # fmt: skip


@dataclass(frozen=True)
class ProcessLaunches:
    """Launches of one process in API order, each array of shape (n,), ``grid`` (n, 3).

    ``launch`` is the ordinal within the process; ``total_launches`` counts the process's whole run, not the
    slice. ``kernel`` indexes ``kernels`` (name, block, registers, shared memory); ``nvtx`` (a path,
    "outer/inner"), ``operator`` and ``input_shapes`` index ``texts``, -1: none. ``graph_launch`` and
    ``graph_node`` are ordinals, -1 outside graphs. ``call`` is the ordinal of the API call, one for all
    nodes of a graph launch; ``thread`` of the process makes it. ``operators`` are the calls of operators that
    do not end before the slice. ``effective_sms`` is the number of SMs in use.

    Light: ``call_ns`` (begin of the API call, which takes CALL_DURATION_NS), ``start_ns``, ``duration_ns``,
    on one clock for all processes, and ``ranges``, the NVTX ranges up to the slice's end that do not end
    before it; ``counters`` is empty. Detailed: ``counters``, float64 by canonical name; times are empty.
    """

    process: int
    total_launches: int
    effective_sms: int
    kernels: tuple[Kernel, ...]
    texts: tuple[str, ...]
    launch: Ints
    kernel: Ints
    grid: Ints
    stream: Ints
    nvtx: Ints
    operator: Ints
    input_shapes: Ints
    graph_launch: Ints
    graph_node: Ints
    call: Ints
    thread: Ints
    operators: OperatorCalls
    call_ns: Ints = field(default_factory=none)
    start_ns: Ints = field(default_factory=none)
    duration_ns: Ints = field(default_factory=none)
    ranges: NvtxRanges = field(default_factory=NvtxRanges)
    counters: dict[str, Floats] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.launch)


class VirtualGPU:
    """A GPU of one kind. ``index`` only names it: all GPUs of a kind and ``seed`` measure the same.

    Raises ParameterError for an unknown kind.
    """

    def __init__(self, kind: str, index: int = 0, *, seed: int = 0) -> None:
        self.architecture = architecture(kind)
        self.seed = seed
        self.device = Device(
            index=index,
            name=f"virtual {self.architecture.kind}",
            uuid=f"GPU-virtual-{self.architecture.identifier}-{index}",
            compute_capability=self.architecture.compute_capability,
            sm_count=self.architecture.sm_count,
        )

    def metadata(self, level: Level, condition: Condition = BASELINE) -> TableMetadata:
        """Metadata of every launch table of this GPU, always marked ``synthetic``."""
        from assay_sampling.launches.table import TableMetadata  # noqa: PLC0415 - the tools need no Arrow

        return TableMetadata(level=level, origin="synthetic", condition=condition, devices=(self.device,))

    def effective_sms(self, sm_percent: float | None = 100.0) -> int:
        """SMs at a share in percent, rounded down to whole TPCs of two, at least one TPC.

        Raises ParameterError for a share outside (0, 100].
        """
        share = 100.0 if sm_percent is None else sm_percent
        if not 0 < share <= 100:
            raise ParameterError("sm_percent", f"{share} is not above 0 and at most 100")
        tpcs = self.architecture.sm_count // SMS_PER_TPC * share / 100.0
        return SMS_PER_TPC * max(1, int(tpcs + 1e-9))

    def execute(
        self,
        workload: Workload,
        *,
        level: Level,
        condition: Condition = BASELINE,
        process: int | None = None,
        profiled: bool | None = None,
        skip: int = 0,
        count: int | None = None,
    ) -> list[ProcessLaunches]:
        """Run a workload and give launches [skip, skip + count) of each process (or of one).

        Args:
            workload: see :func:`assay_virtual.workloads.loading.load_workload`.
            level: "detailed": under a profiler, one launch at a time, with counters; "light": free running.
            condition: fields that are not recorded (None) are as in the baseline.
            process: ordinal of the only process wanted; default: all.
            profiled: whether the program sees a profiler, which activates the switch ``autotune`` of the
                workload file; default: at the detailed level.
            skip: launches of each process before the slice; they run, so caches carry over.
            count: launches of each process in the slice, at most; default: all.

        A slice is exactly that part of the whole run. Raises ParameterError for an impossible slice or
        process, or for flushed caches at the light level (only a profiler flushes); InputError for a kernel
        that does not fit into an SM.
        """
        if skip < 0 or (count is not None and count < 0):
            raise ParameterError("slice", f"skip={skip} count={count} is not possible")
        if process is not None and not 0 <= process < workload.processes:
            raise ParameterError("process", f"{process} is not in 0 to {workload.processes - 1}")
        if level == "light" and condition.cache == "all":
            raise ParameterError("cache", "nothing flushes caches in a free-running program")
        tuning = level == "detailed" if profiled is None else profiled
        launched = []
        for number in range(workload.processes) if process is None else (process,):
            total = workload.launches(number, self.device.compute_capability)
            first, stop = min(skip, total), total if count is None else min(total, skip + count)
            sequence = launch_sequence(
                workload, number, self.device.compute_capability, stop=stop, autotune=tuning
            )
            run = _Run(self, workload, number, condition, sequence)
            launched.append(
                ProcessLaunches(
                    process=number,
                    total_launches=total,
                    effective_sms=run.sm_count,
                    kernels=sequence.kernels,
                    texts=sequence.texts,
                    launch=np.arange(first, stop),
                    **{name: getattr(sequence, name)[first:] for name in _CARRIED},
                    **(run.detailed(first) if level == "detailed" else run.light(first)),
                )
            )
        return launched


@dataclass(frozen=True)
class _Run:
    """The run of one process from its first launch on; both levels return columns from ``first`` on."""

    gpu: VirtualGPU
    workload: Workload
    process: int
    condition: Condition
    sequence: Sequence

    @property
    def sm_count(self) -> int:
        return self.gpu.effective_sms(self.condition.sm_percent)

    def detailed(self, first: int) -> dict[str, Any]:
        demand, timing, clock_hz = self._timed()
        duration_ns = timing.duration_ns * self._noise("profiled", PROFILED_SIGMA)
        clocks = Clocks(duration_ns, clock_hz, self._noise("gpc", GPC_SIGMA))
        counters = counters_of(self.gpu.architecture, self.sequence, demand, timing, clocks)
        calls = self.sequence.operators
        return {
            "counters": {name: values[first:] for name, values in counters.items()},
            "operators": calls.take(np.flatnonzero(calls.last >= first)),
        }

    def light(self, first: int) -> dict[str, Any]:
        _, timing, _ = self._timed()
        duration_ns = np.rint(timing.duration_ns * self._noise("free running", FREE_RUNNING_SIGMA))
        call_ns, start_ns = timeline(
            self.sequence,
            duration_ns.astype(np.int64),
            timing.waves >= 1.0,
            begin_ns=_FIRST_CALL_NS + self.process * _NEXT_PROCESS_NS,
            interval_ns=self.workload.launch_interval_ns,
            key=self._key("host"),
        )
        return {
            "call_ns": call_ns[first:],
            "start_ns": start_ns[first:],
            "duration_ns": duration_ns[first:].astype(np.int64),
            "ranges": nvtx_ranges(self.sequence, call_ns, first),
            "operators": timed_operators(self.sequence, call_ns, first),
        }

    def _timed(self) -> tuple[Demand, Timing, Floats]:
        gpu = self.gpu.architecture
        clock_hz = self._clock_hz()
        flushed = self.condition.cache == "all"
        demand = demand_of(gpu, self.workload, self.sequence, flushed=flushed)
        return demand, time_of(gpu, demand, self.sm_count, clock_hz), clock_hz

    def _clock_hz(self) -> Floats:
        """The SM clock of each launch: locked, or a boost that slowly falls and rises again."""
        gpu, launches = self.gpu.architecture, np.arange(len(self.sequence))
        if self.condition.clock == "base":
            return np.full(len(launches), float(gpu.base_clock_hz))
        if self.condition.clock == "boost":
            return np.full(len(launches), float(gpu.boost_clock_hz))
        return gpu.boost_clock_hz * (1.0 - BOOST_DRIFT_SHARE * drift(self._key("clock"), launches))

    def _noise(self, quantity: str, sigma: float) -> Floats:
        return lognormal(self._key(quantity), np.arange(len(self.sequence)), sigma)

    def _key(self, quantity: str) -> np.uint64:
        condition = (self.condition.cache == "all", self.condition.clock or "none", self.sm_count)
        gpu = (self.gpu.architecture.kind, self.gpu.seed)
        return key_of(self.workload.seed, self.process, *gpu, *condition, quantity)
