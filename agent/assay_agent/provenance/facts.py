"""Collects the facts of an attempt from its parts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from assay_agent.execution.compile_cache import VARIABLES
from assay_agent.execution.environment import MeasuredGPU, scrubbed
from assay_core.records.attempt import AttemptLog
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import Work
from assay_sampling.launches.table import counter_columns, table_metadata
from assay_sampling.running.attempt_facts import (
    AttemptFacts,
    ClockState,
    ConditionFacts,
    CounterFacts,
    LibraryFacts,
    ProgramFact,
    ToolFact,
)

# Set by the agent: folders and names that differ between GPUs and agents even for equal runs.
_PRIVATE = frozenset(
    ("HOME", "TMPDIR", "CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY",
     "CUDA_MPS_SM_PARTITION",
     "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "ASSAY_TRACER_SOCKET", "ASSAY_KINETO_FILE", *VARIABLES)
)  # fmt: skip
_OF_VIRTUAL_GPUS = LibraryFacts(note="a virtual GPU runs no CUDA")


def live_facts(
    work: Work,
    gpu: MeasuredGPU,
    *,
    tools: Sequence[ToolFact],
    libraries: LibraryFacts | None,
    environment: Mapping[str, str],
    in_force: Mapping[str, Any],
    flags: Collection[ValidityFlag],
    program: ProgramFact | None = None,
    compile_cache: str = "",
) -> AttemptFacts:
    """The facts of a live run.

    Args:
        work: the run that was asked for.
        gpu: the GPU that measured it.
        tools: the tools that measured it.
        libraries: those that its processes had loaded; None if nobody looked.
        environment: of the run, unscrubbed.
        in_force: the facts of its conditions (:attr:`assay_agent.conditions.Conditions.facts`).
        flags: of the run so far.
        program: the file that was started; None if none was.
        compile_cache: the hash of the compiled code that the run began with; "" without any.
    """
    return AttemptFacts(
        synthetic=gpu.synthetic,
        gpu=gpu.device.name,
        driver=gpu.driver_version,
        cuda=str(in_force.get("cuda_version", "")),
        tools=tuple(tools),
        libraries=_OF_VIRTUAL_GPUS if gpu.synthetic else libraries or LibraryFacts(),
        condition=_condition(work, gpu, in_force, flags),
        environment_hash=environment_hash(environment, gpu.model.own_variables if gpu.model else ()),
        bundle=work.command.bundle.sha256 if work.command is not None and work.command.bundle else "",
        program=program or ProgramFact(),
        compile_cache=compile_cache,
    )


def environment_hash(environment: Mapping[str, str], own_variables: Collection[str] = ()) -> str:
    """BLAKE2b-128 of the environment, without secrets and variables private to agent and GPU.

    ``own_variables``: further private ones, of the GPU's model.
    """
    private = _PRIVATE.union(own_variables)
    shown = [[name, value] for name, value in scrubbed(environment).items() if name not in private]
    return hashlib.blake2b(json.dumps(shown).encode(), digest_size=16).hexdigest()


def _condition(
    work: Work, gpu: MeasuredGPU, in_force: Mapping[str, Any], flags: Collection[ValidityFlag]
) -> ConditionFacts:
    condition = work.condition
    state, by, why = _clock(work, gpu, flags)
    mps = "mps_program" in in_force
    return ConditionFacts(
        cache=condition.cache or "",
        flush_method=_flush_method(work, in_force),
        sm_percent=condition.sm_percent,
        sm_percent_in_force=in_force.get("sm_percent_in_force"),
        effective_sms=in_force.get("effective_sms"),
        all_sms=in_force.get("all_sms", gpu.device.sm_count),
        sm_share=str(in_force.get("sm_share", "limit")),
        mps_daemon="private" if mps else "none",
        mps_version=str(in_force.get("mps_version", "")),
        mps_program=str(in_force.get("mps_program", "")),
        clock=condition.clock or "",
        clock_state=state,
        clock_locked_by=by,
        clock_refused=why,
    )


def _flush_method(work: Work, in_force: Mapping[str, Any]) -> str:
    if work.condition.cache != "all":
        return ""
    # A condition that flushes names its method.
    by_ncu = "ncu --cache-control all, before every pass" if work.level == "detailed" else ""
    return str(in_force.get("flush_method", by_ncu))


def _clock(work: Work, gpu: MeasuredGPU, flags: Collection[ValidityFlag]) -> tuple[ClockState, str, str]:
    """Whether the clock was locked, and by whom or why not."""
    if work.condition.clock not in ("base", "boost"):
        return "virtual" if gpu.synthetic else "free", "", ""
    by = "ncu" if work.level == "detailed" else "NVML"
    refused = next((flag.detail for flag in flags if flag.name == "clock_unlocked"), None)
    if refused is not None:
        return "refused", "", refused or f"{by} could not lock it"
    return "virtual" if gpu.synthetic else "locked", by, ""


class Collected:
    """Facts from the launches themselves: which counters came, how often they were replayed, which tool.

    ``counters`` are the run's; empty: the profiler's default.
    """

    def __init__(self, counters: Sequence[str]) -> None:
        self._requested_counters = tuple(counters)
        self._schema: pa.Schema | None = None
        self._passes: tuple[int, int] | None = None

    def add(self, records: pa.RecordBatch) -> None:
        """A batch of launches, before it is sent."""
        self._schema = records.schema
        if "replay_passes" not in records.schema.names:
            return
        passes = pc.min_max(records.column("replay_passes")).as_py()
        if passes["min"] is None:
            return
        least, most = self._passes or (passes["min"], passes["max"])
        self._passes = int(min(least, passes["min"])), int(max(most, passes["max"]))

    def log_with_facts(self, log: AttemptLog) -> AttemptLog:
        """The log of the attempt with its facts completed."""
        facts = self.completed(log.facts)
        return log if facts is None else replace(log, facts_json=facts.to_json())

    def completed(self, facts: AttemptFacts | None) -> AttemptFacts | None:
        """The facts with what was seen; for a recording, which has none, all that its table says.

        None if neither is known.
        """
        if self._schema is None:
            return facts
        metadata = table_metadata(self._schema)
        if facts is None:
            device = metadata.devices[0] if metadata.devices else None
            facts = AttemptFacts(
                synthetic=metadata.synthetic,
                gpu=device.name if device is not None else "",
                driver=metadata.driver_version,
                recording=metadata.format or "unknown",
                libraries=LibraryFacts(note="a recording does not list them"),
                condition=_of_recording(metadata.condition.to_dict()),
            )
        if not facts.tools and metadata.tool:
            facts = replace(facts, tools=(ToolFact(metadata.tool, metadata.tool_version),))
        return replace(facts, counters=self._counters(self._schema))

    def _counters(self, schema: pa.Schema) -> CounterFacts:
        collected = {column.name: column.metric for column in counter_columns(schema)}
        least, most = self._passes or (None, None)
        missing = tuple(name for name in self._requested_counters if name not in collected)
        return CounterFacts(
            self._requested_counters, collected, missing, least_passes=least, most_passes=most
        )


def _of_recording(condition: Mapping[str, Any]) -> ConditionFacts:
    return ConditionFacts(
        cache=condition["cache"] or "",
        sm_percent=condition["sm_percent"],
        clock=condition["clock"] or "",
        sm_share=condition.get("sm_share", "limit"),
    )
