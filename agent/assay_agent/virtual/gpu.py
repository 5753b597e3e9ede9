"""The virtual GPU: executes a workload file and gives what was launched, how long it took, what it counted.

No silicon is involved: every number is computed by the documented model (docs/virtual-gpu.md), is the same
on every machine, and carries the mark ``synthetic``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay_agent.virtual.architectures import SMS_PER_TPC, architecture
from assay_agent.virtual.counting import counters_of
from assay_agent.virtual.randomness import drift, key_of, lognormal
from assay_agent.virtual.sequence import launch_sequence
from assay_agent.virtual.timeline import NvtxRanges, nvtx_ranges, timeline
from assay_agent.virtual.timing import demand_of, time_of
from assay_agent.virtual.workload import Kernel, Workload
from assay_sampling.errors import ParameterError
from assay_sampling.launch_table import BASELINE, Condition, Device, Level, TableMetadata

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

FREE_RUNNING_SIGMA = 0.015
PROFILED_SIGMA = 0.003
BOOST_DRIFT_SHARE = 0.03


@dataclass(frozen=True)
class ProcessLaunches:
    """Launches of one process in API order, each array of shape (n,), ``grid`` (n, 3).

    ``total_launches`` counts the process's whole run, not the slice. ``kernel`` indexes ``kernels`` (names,
    blocks, registers, shared memory); ``nvtx`` (path, "outer/inner"), ``operator`` and ``input_shapes``
    index ``texts``, -1: none. ``graph_launch`` and ``graph_node`` are ordinals, -1 outside graphs.
    ``call`` is the ordinal of the API call, the same for all nodes of one graph launch.

    Light: ``call_ns`` (begin of the API call, which takes CALL_DURATION_NS), ``start_ns``, ``duration_ns``
    on one clock for all processes, and ``ranges``, the NVTX ranges that the slice's launches stand in.
    Detailed: ``counters``, float64 by canonical name; all three times are empty.
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
    call_ns: Ints
    start_ns: Ints
    duration_ns: Ints
    ranges: NvtxRanges
    counters: dict[str, Floats]

    def __len__(self) -> int:
        return len(self.launch)


class VirtualGPU:
    """A GPU of one kind. ``index`` only names it: all GPUs of a kind and ``seed`` measure the same.

    Raises ParameterError for a kind that does not exist.
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
        """What holds for every launch table of this GPU; the mark ``synthetic`` is always set."""
        return TableMetadata(level=level, synthetic=True, condition=condition, devices=(self.device,))

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
            level: "detailed": under a profiler, one launch at a time, with counters; "light": free running.
            condition: what is not recorded (None) is as in the baseline.
            process: ordinal of the only process wanted; all without.
            profiled: whether the program sees a profiler (the switch of ``autotune``); at the detailed
                level unless said.
            skip: launches of each process before the slice; they run, so caches carry over.
            count: launches of each process in the slice, at most; all without.

        A slice is exactly that part of the whole run. Raises ParameterError for a slice or process that
        cannot be, or flushed caches at the light level (only a profiler flushes); InputError for a kernel
        that does not fit into an SM.
        """
        if skip < 0 or (count is not None and count < 0):
            raise ParameterError("slice", f"skip={skip} count={count} is not possible")
        if process is not None and not 0 <= process < workload.processes:
            raise ParameterError("process", f"{process} is not in 0 to {workload.processes - 1}")
        if level == "light" and condition.cache == "all":
            raise ParameterError("cache", "no one flushes caches in a free-running program")
        wanted = range(workload.processes) if process is None else (process,)
        run = _Run(self, workload, level, condition, level == "detailed" if profiled is None else profiled)
        return [run.process(number, skip, count) for number in wanted]


@dataclass(frozen=True)
class _Run:
    gpu: VirtualGPU
    workload: Workload
    level: Level
    condition: Condition
    profiled: bool

    def process(self, process: int, skip: int, count: int | None) -> ProcessLaunches:
        total = self.workload.launches(process)
        stop = total if count is None else min(total, skip + count)
        gpu = self.gpu.architecture
        sequence = launch_sequence(
            self.workload, process, gpu.compute_capability, stop=max(stop, skip), autotune=self.profiled
        )
        demand = demand_of(gpu, self.workload, sequence, flushed=self.condition.cache == "all")
        sm_count = self.gpu.effective_sms(self.condition.sm_percent)
        clock_hz = self._clock_hz(process, len(sequence))
        timing = time_of(gpu, demand, sm_count, clock_hz)
        sigma = PROFILED_SIGMA if self.level == "detailed" else FREE_RUNNING_SIGMA
        duration = timing.duration_ns * lognormal(
            self._key(process, self.level), np.arange(len(sequence)), sigma
        )
        cut = slice(min(skip, len(sequence)), None)
        none = np.zeros(0, np.int64)
        call_ns = start_ns = duration_ns = none
        ranges = NvtxRanges((), none, none, none, none)
        counters: dict[str, Floats] = {}
        if self.level == "detailed":
            unevenness = lognormal(self._key(process, "gpc"), np.arange(len(sequence)), 0.2)
            counters = counters_of(gpu, sequence, demand, timing, duration, clock_hz, unevenness)
            counters = {name: values[cut] for name, values in counters.items()}
        else:
            duration_ns = np.rint(duration).astype(np.int64)
            call_ns, start_ns = timeline(
                sequence, duration_ns, timing.waves >= 1.0, self.workload.launch_interval_ns,
                self._key(process, "host"), process,
            )  # fmt: skip
            ranges = nvtx_ranges(sequence, call_ns, cut.start)
            call_ns, start_ns, duration_ns = call_ns[cut], start_ns[cut], duration_ns[cut]
        return ProcessLaunches(
            process=process,
            total_launches=total,
            effective_sms=sm_count,
            kernels=sequence.kernels,
            texts=sequence.texts,
            launch=np.arange(cut.start, len(sequence)),
            **{name: getattr(sequence, name)[cut] for name in _CARRIED},
            call_ns=call_ns,
            start_ns=start_ns,
            duration_ns=duration_ns,
            ranges=ranges,
            counters=counters,
        )

    def _key(self, process: int, quantity: str) -> np.uint64:
        gpu = self.gpu
        return key_of(self.workload.seed, gpu.seed, process, gpu.architecture.kind, quantity)

    def _clock_hz(self, process: int, n: int) -> Floats:
        """The SM clock of each launch: locked, or boost that drifts slowly downwards and back."""
        gpu = self.gpu.architecture
        if self.condition.clock == "base":
            return np.full(n, float(gpu.base_clock_hz))
        if self.condition.clock == "boost":
            return np.full(n, float(gpu.boost_clock_hz))
        walked = drift(self._key(process, "clock"), np.arange(n))
        return gpu.boost_clock_hz * (1.0 - BOOST_DRIFT_SHARE * walked)


_CARRIED = ("kernel", "grid", "stream", "nvtx", "operator", "input_shapes", "graph_launch", "graph_node",
            "call")  # fmt: skip
