"""The request of an analysis: plain values that are pickled into a worker process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from assay_core.records.campaign import RunState
from assay_core.records.failure import Failure
from assay_sampling.launches.in_memory import DEFAULT_MEMORY_LIMIT_BYTES
from assay_sampling.launches.table import BASELINE, Condition
from assay_sampling.running.identity import RunLevel
from assay_server.campaign_file.compiled import Ranks, SlicePlan
from assay_server.places import RecordsPlace

DEFAULT_METHODS: tuple[tuple[str, Mapping[str, Any]], ...] = (("pks", {}), ("random", {}), ("systematic", {}))


def distinct_texts(texts: Iterable[str]) -> tuple[str, ...]:
    """Each text once, in order of its first place, without empty ones."""
    return tuple(dict.fromkeys(text for text in texts if text))


@dataclass(frozen=True)
class RunFacts:
    """What a run's numbers were measured with, besides its GPU; empty where nothing is known.

    Args:
        gpus: names of the GPUs, as the driver gives them.
        drivers: versions of NVIDIA's driver.
        tools: (name, version) of the tools that measured.
        libraries: those that the workload loaded: by name, the version for people by build.
        library_notes: notes about the libraries.
        bundles: SHA-256 of the submitter's files that it ran.
        programs: SHA-256 of the program that it ran; several if its slices ran different ones.
        compile_caches: hashes of the compiled code that its attempts began with.
        days: those on which a live run was measured on silicon, as ISO dates in UTC.
    """

    gpus: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    tools: tuple[tuple[str, str], ...] = ()
    libraries: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    library_notes: tuple[str, ...] = ()
    bundles: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    compile_caches: tuple[str, ...] = ()
    days: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        """Whether its attempts recorded any fact besides their days."""
        return bool(self.gpus or self.drivers or self.tools or self.libraries or self.library_notes)


@dataclass(frozen=True)
class RunData:
    """One finished run of a campaign and its launch tables in the store.

    Args:
        run_id: the run's name, unique in the store.
        workload: the workload it ran.
        device_kind: the kind of GPU; labels columns of tables.
        level: "detailed", "light", or "bare" (without a profiler, so without launches).
        condition: cache, clock and SM share it was planned under.
        repeat: 0-based ordinal among runs that differ in nothing else.
        files: Parquet files of the record store, in slice order.
        file_hashes: their content hashes when they were published; empty where they are not checked.
        flags: validity flags as (name, detail, invalidates).
        synthetic: True where no silicon produced the data.
        launches: launches in ``files``.
        content_hash: hash of the run's records, to trace where numbers come from.
        live: measured by this campaign, not played back from a recording.
        under_mps: made under an MPS daemon, for comparisons of SM shares.
        slice_launches: launches of each slice, in order, including empty slices, which have no file.
        launches_asked: launches that its slices should have together; 0: all of the workload.
        costs_only: a detailed run that collected only what one pass gives: cycles and instructions.
        cycles: the run of the same launches in one pass that provides this run's cycles.
        executions: how often the command ran, once per slice; 0: not known.
        wall_seconds: of all executions together; 0: not known.
        busy_seconds: how long the GPU ran kernels in that time, by the driver's count; None: not known.
        facts: what its numbers were measured with, besides the GPU.
        plan: its slices as they were chosen from a light run; None: they were not.
        rank: the process whose launches alone are meant; None: those of all processes.
    """

    run_id: str
    workload: str
    device_kind: str
    level: RunLevel
    condition: Condition = BASELINE
    repeat: int = 0
    files: tuple[str, ...] = ()
    file_hashes: tuple[str, ...] = ()
    flags: tuple[tuple[str, str, bool], ...] = ()
    synthetic: bool = False
    launches: int = 0
    content_hash: str = ""
    live: bool = False
    under_mps: bool = False
    slice_launches: tuple[int, ...] = ()
    launches_asked: int = 0
    costs_only: bool = False
    cycles: RunData | None = None
    executions: int = 0
    wall_seconds: float = 0.0
    busy_seconds: float | None = None
    facts: RunFacts = field(default_factory=RunFacts, hash=False)
    plan: SlicePlan | None = None
    rank: int | None = None

    @property
    def slices(self) -> int:
        """How many slices it was measured in."""
        return len(self.slice_launches)

    @property
    def compares(self) -> bool:
        """Whether it only serves comparisons with the baseline: selections are not scored on it."""
        return self.live and (self.under_mps or self.condition != BASELINE)


@dataclass(frozen=True)
class FailedRun:
    """A run of a campaign without data: where it stands, and its failure if it has one."""

    run_id: str
    state: RunState = RunState.FAILED
    failure: Failure | None = None
    workload: str = ""
    device_kind: str = ""
    level: str = ""
    condition: Condition = BASELINE
    repeat: int = 0

    @property
    def reason(self) -> str:
        """Why it has no data, in words."""
        if self.failure is None:
            return str(self.state)
        return f"{self.failure.failure_class}: {self.failure.subject}: {self.failure.cause}"


@dataclass(frozen=True)
class AnalysisRequest:
    """A campaign's finished runs and how to analyse them.

    Args:
        campaign_id: the campaign's name in the store.
        campaign_name: the name its file gives it.
        synthetic: the campaign's own mark; every run must carry the same.
        seed: seed of every random choice.
        methods: (method, parameters) in the order of the report.
        reference: the kind of GPU on which selections are made; None: the first of each workload.
        memory_limit_bytes: bounds the launches in memory at one time.
        runs: finished runs, in the order of the campaign file.
        failed_runs: the runs that have no data.
        owner_name: who submitted the campaign; "" if that is not known.
        project: the campaign's project; "" if it has none.
        ranks: by workload, whose ranks are evaluated each alone.
        records: the bucket that ``files`` of the runs are in; None: they are paths.
        by_operation: the workloads whose selections divide operations.
    """

    campaign_id: str
    campaign_name: str
    synthetic: bool = False
    seed: int = 0
    methods: tuple[tuple[str, Mapping[str, Any]], ...] = field(default=DEFAULT_METHODS)
    reference: str | None = None
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES
    runs: tuple[RunData, ...] = ()
    failed_runs: tuple[FailedRun, ...] = ()
    owner_name: str = ""
    project: str = ""
    ranks: Mapping[str, Ranks] = field(default_factory=dict)
    records: RecordsPlace | None = None
    by_operation: tuple[str, ...] = ()

    @property
    def workloads(self) -> tuple[str, ...]:
        """The workloads that have runs, in order: parts that can be analysed in parallel."""
        return tuple(dict.fromkeys(run.workload for run in self.runs))

    def of_workload(self, workload: str) -> AnalysisRequest:
        """The request without the runs of other workloads."""
        return replace(
            self,
            runs=tuple(run for run in self.runs if run.workload == workload),
            failed_runs=tuple(run for run in self.failed_runs if run.workload == workload),
            ranks={name: ranks for name, ranks in self.ranks.items() if name == workload},
        )
