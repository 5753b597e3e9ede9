"""The metrics and command lines of Nsight Compute for a detailed run, from tool, work and paths.

The options are those of :mod:`assay_sampling.nsight.commands`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assay_agent.execution.errors import ProfilerError
from assay_agent.profilers.ncu.preflight import NOT_ASKED, Listing, refused_metrics
from assay_core.records.work import Work
from assay_sampling.counters.definitions import CYCLE_COUNTERS, metric_of, registry
from assay_sampling.errors import CounterUnavailableError, ParameterError
from assay_sampling.nsight import commands
from assay_sampling.nsight.tool import ToolVersion
from assay_sampling.running.failures import FailureClass
from assay_sampling.running.identity import ClockCondition

# All of these together fit into one pass, without save and restore between passes.
ONE_PASS_COUNTERS = (
    "cycles_gpc_avg", "cycles_gpc_max", "instructions", "profiled_duration_ns", "clock_gpc_hz",
)  # fmt: skip


@dataclass(frozen=True)
class MetricPlan:
    """The counters to collect, with their metrics, and those that this GPU or tool does not have."""

    metrics: tuple[tuple[str, str], ...]
    missing: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(metric for _, metric in self.metrics)


def plan_metrics(
    work: Work, compute_capability: str, tool_version: str, listing: Listing = NOT_ASKED
) -> MetricPlan:
    """The metrics for the counters of a run; by default the one-pass set.

    The list of the box's own tool decides (``listing``), or the registry if the tool could not be asked.
    Raises ProfilerError for a counter that does not exist, or if none of the requested counters, or none
    of the requested cycles, can be collected.
    """
    counters = work.counters
    if set(counters) <= set(ONE_PASS_COUNTERS):
        counters = ONE_PASS_COUNTERS
    metrics: list[tuple[str, str]] = []
    missing: list[str] = []
    for counter in dict.fromkeys(counters):
        try:
            metrics.append((counter, _metric(counter, compute_capability, tool_version, listing)))
        except CounterUnavailableError:
            missing.append(counter)
        except ParameterError as error:
            raise ProfilerError(FailureClass.METRIC_UNKNOWN, str(work.key), error.cause) from error
    needed = _needed_in_vain(work.counters or counters, missing)
    if needed:
        refused = refused_metrics(listing, needed)
        raise ProfilerError(
            FailureClass.METRIC_UNKNOWN,
            str(work.key),
            f"compute capability {compute_capability or '?'} with Nsight Compute {tool_version} has none of "
            f"the counters {', '.join(needed)}, without which the run would be worthless"
            + (f"; the tool refused {', '.join(refused)} when it profiled" if refused else ""),
            "install a release of Nsight Compute that knows this GPU, or choose other counters "
            "(ncu --query-metrics lists them)",
        )
    return MetricPlan(tuple(metrics), tuple(missing))


def _needed_in_vain(counters: Sequence[str], missing: Sequence[str]) -> list[str]:
    """The missing counters that make a run worthless: all requested cycles, or all counters."""
    for group in ([name for name in counters if name in CYCLE_COUNTERS], list(counters)):
        if group and set(group) <= set(missing):
            return group
    return []


def _metric(counter: str, compute_capability: str, tool_version: str, listing: Listing) -> str:
    """The metric to ask for; raises as :func:`assay_sampling.counters.definitions.metric_of`."""
    if counter not in registry():
        return metric_of(counter, compute_capability, tool_version)
    for metric in registry()[counter].metrics:
        may_exist = listing.names is not None or metric.exists_on(compute_capability, tool_version)
        if may_exist and listing.lists(metric.name):
            return metric.name
    raise CounterUnavailableError(counter, f"Nsight Compute {tool_version} lists no metric of {listing.chip}")


def profile_command(tool: ToolVersion, work: Work, metrics: MetricPlan, report: Path, log: Path) -> list[str]:
    """The command that profiles the slice of a detailed run.

    ``report`` ends in ``.ncu-rep``, so no release compresses it. Raises ProfilerError for a condition that
    this release cannot make.
    """
    assert work.command is not None
    return commands.ncu_profile(
        tool,
        metrics.names,
        work.command.argv,
        report=str(report),
        log=str(log),
        window=commands.Window(work.launch_skip, work.launch_count),
        condition=replace(work.condition, clock=_clock(tool, work)),
        operations=work.command.operations,
    )


def import_command(tool: ToolVersion, report: Path) -> list[str]:
    """The command that prints a report as the raw page, in base units."""
    return commands.ncu_import(tool, str(report))


def _clock(tool: ToolVersion, work: Work) -> ClockCondition:
    clock = work.condition.clock or "none"
    if clock == "boost" and not tool.offers("--clock-control", "boost"):
        raise ProfilerError(
            FailureClass.SERVER_REFUSED,
            str(work.key),
            f"Nsight Compute {tool.version} of this box cannot lock the boost clock",
            "use clock: base or none in the campaign file, or install Nsight Compute 2026.1 or later",
        )
    return clock
