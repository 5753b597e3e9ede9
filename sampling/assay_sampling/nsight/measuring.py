"""Command lines of the tools that measure what a selection method needs; pure functions.

The agent gives the tools these options too (:mod:`assay_sampling.nsight.commands`), under the baseline:
caches and clocks left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay_sampling.counters.definitions import COST_COUNTERS, metric_of, registry
from assay_sampling.counters.replay_passes import PassCount, replay_passes
from assay_sampling.errors import CounterUnavailableError, ParameterError
from assay_sampling.methods.needs import Needs
from assay_sampling.methods.registry import methods_without_counters, needs
from assay_sampling.notes.registry import Note, make_note
from assay_sampling.nsight import commands
from assay_sampling.nsight.commands import WHOLE, Window
from assay_sampling.nsight.tool import newer_than_oldest, oldest_release, options_since, tool_of_release

REPORT, PAGE = "counters.ncu-rep", "counters.csv"
# What photon needs besides counters; no profiler makes it.
BLOCKS = "blocks.csv"
LIGHT_STEM, LIGHT_REPORT, LIGHT = "light", "light.nsys-rep", "light.sqlite"
WORKLOAD = ("./workload",)
# On GPUs before Volta, Nsight Compute counts differently or not at all.
_FIRST_CAPABILITY = (7, 0)
# Names of the published artifact that no release lists for any GPU.
_UNLISTED = "sass__"
# Launches of the window that a note proposes.
_WINDOW = 1000


@dataclass(frozen=True)
class CommandLine:
    """A command: its purpose, its words, and the file for its standard output ("": none)."""

    what: str
    argv: tuple[str, ...]
    output: str = ""


@dataclass(frozen=True)
class Measuring:
    """What to measure for a method on a GPU, and how.

    Args:
        counters: (canonical name, metric of Nsight Compute) of each counter to collect.
        missing: counters that this GPU or release does not have.
        passes: over each launch.
        of_every_launch: a window of the first launches is not enough.
        commands: in order.
        notes: remarks for the user.
    """

    method: str
    compute_capability: str
    tool_version: str
    counters: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]
    passes: PassCount
    of_every_launch: bool
    commands: tuple[CommandLine, ...]
    notes: tuple[Note, ...] = ()


def measuring(
    method: str,
    parameters: Mapping[str, Any],
    *,
    compute_capability: str = "",
    tool_version: str = "",
    first_release: str = "",
    window: Window = WHOLE,
    command: Sequence[str] = WORKLOAD,
    operations: bool = False,
) -> Measuring:
    """The command lines to select by a method.

    Args:
        compute_capability: of the GPU, such as "7.0"; "": not known, so the commonest names are taken.
        tool_version: the release of Nsight Compute; "": only options that every release has from
            ``first_release`` on.
        first_release: the first release of Nsight Compute that knows the GPU; "": every release does.
        window: the launches to collect counters for; all by default.
        command: the workload.
        operations: record which operation each launch belongs to.

    Raises ParameterError for an unknown method, parameter or release, a window where none helps, and a GPU
    that Nsight Compute does not measure; CounterUnavailableError where the GPU lacks a counter.
    """
    method_needs = needs(method, parameters)
    if method_needs is None:
        raise ParameterError(
            method,
            "this method, of another package, does not say which counters it needs",
            "see its documentation",
        )
    _check_window(method, method_needs, window)
    release = tool_version or (first_release if newer_than_oldest("ncu", first_release) else "")
    collected, missing = _collected(method, method_needs, compute_capability, release)
    light = _light(command, operations)
    metrics = [metric for _, metric in collected]
    detailed = _detailed(metrics, release, window, command, operations=operations) if metrics else ()
    plan = Measuring(
        method,
        compute_capability,
        tool_version,
        collected,
        missing,
        replay_passes([name for name, _ in collected], compute_capability),
        method_needs.of_every_launch,
        (
            *detailed,
            *light,
            _selecting(method, parameters, window, detailed=bool(collected), operations=operations),
        ),
    )
    return replace(plan, notes=tuple(_notes(plan, method_needs, window, release, operations=operations)))


def _check_window(method: str, method_needs: Needs, window: Window) -> None:
    if not window.count and not window.skip:
        return
    if method_needs.nothing:
        cause = f"{method} needs no counters, and the light level is always of every launch"
    elif method_needs.of_every_launch:
        cause = f"{method} needs the counters of every launch: a window is not enough"
    else:
        return
    raise ParameterError("--first, --skip", cause, "leave them out, or use a window with the method pks")


def _collected(
    method: str, method_needs: Needs, capability: str, version: str
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Counters with their metrics, and the optional counters that the GPU lacks."""
    if method_needs.nothing:
        return (), ()
    if capability and _numbers(capability) < _FIRST_CAPABILITY:
        raise ParameterError(
            "--gpu",
            f"current releases of Nsight Compute measure compute capability 7.0 and later, not {capability}",
            "measure light runs, and use a method that needs no counters: "
            + ", ".join(methods_without_counters()),
        )
    metrics, missing = [], []
    for name in dict.fromkeys((*method_needs.to_collect(), *COST_COUNTERS)):
        try:
            metrics.append((name, metric_of(name, capability, version)))
        except CounterUnavailableError:
            if name in method_needs.counters:
                raise
            missing.append(name)
    return tuple(metrics), tuple(missing)


def _detailed(
    metrics: Sequence[str], version: str, window: Window, command: Sequence[str], *, operations: bool
) -> tuple[CommandLine, ...]:
    tool = tool_of_release("ncu", version)
    profile = commands.ncu_profile(
        tool, metrics, command, report=REPORT, window=window, operations=operations
    )
    return (
        CommandLine("counters, launch by launch", tuple(profile)),
        CommandLine("that report as a page for Assay", tuple(commands.ncu_import(tool, REPORT)), PAGE),
    )


def _light(command: Sequence[str], operations: bool) -> tuple[CommandLine, ...]:
    tool = tool_of_release("nsys")
    trace = commands.nsys_trace(tool, LIGHT_STEM, command, operations=operations)
    return (
        CommandLine("every launch with its time", tuple(trace)),
        CommandLine(
            "that report as a database for Assay", tuple(commands.nsys_export(tool, LIGHT_REPORT, LIGHT))
        ),
    )


def _selecting(
    method: str, parameters: Mapping[str, Any], window: Window, *, detailed: bool, operations: bool
) -> CommandLine:
    if method == "photon" and "bbv" not in parameters:
        parameters = {**parameters, "bbv": BLOCKS}
    options = [word for name, value in parameters.items() for word in ("--param", f"{name}={value}")]
    # ncu numbers launches over all processes; with an offset they are numbered within each, as in nsys.
    offset = ["--launch-offset", str(window.skip)] if detailed else []
    files = [PAGE, "--light", LIGHT] if detailed else [LIGHT]
    unit = ["--unit", "operation"] if operations else []
    return CommandLine("the selection", ("assay", "select", method, *files, *options, *offset, *unit))


def _notes(
    plan: Measuring, method_needs: Needs, window: Window, release: str, *, operations: bool
) -> Iterator[Note]:
    if method_needs.nothing:
        yield make_note("no_counters_needed", method=plan.method)
        if method_needs.beside is not None:
            yield method_needs.beside
    else:
        yield from _notes_on_counters(plan, window, release)
    later = options_since("nsys")
    pytorch = later.pop(commands.ANNOTATES_PYTORCH)
    for option, first in later.items():
        yield make_note("option_of_later_releases", option=option, first=first)
    if operations:
        yield make_note("operators_of_pytorch", option=commands.ANNOTATES_PYTORCH, first=pytorch)
        if not method_needs.nothing:
            yield make_note("ranges_for_counters")


def _notes_on_counters(plan: Measuring, window: Window, release: str) -> Iterator[Note]:
    if plan.missing:
        yield make_note("counters_not_on_gpu", counters=plan.missing)
    unlisted = tuple(metric for _, metric in plan.counters if metric.startswith(_UNLISTED))
    if unlisted:
        yield make_note("metrics_unlisted", metrics=unlisted)
    if plan.of_every_launch:
        yield make_note("counters_of_every_launch")
    elif not window.count:
        yield make_note("window_is_enough", first=_WINDOW)
    if plan.passes.passes > 1:
        yield make_note("replay_disturbs_cycles", passes=plan.passes.passes)
    if not plan.tool_version:
        yield _about_releases(release)


def _about_releases(release: str) -> Note:
    """``release``: the one whose options the commands have; "": the oldest known."""
    by_release: dict[str, list[str]] = {}
    for option, first in options_since("ncu", release).items():
        by_release.setdefault(first, []).append(option)
    later = tuple(f"{', '.join(options)} from {first} on" for first, options in by_release.items())
    return make_note("options_of_every_release", oldest=release or oldest_release("ncu"), later=later)


def help_of(counter: str) -> str:
    """What a counter counts; of a metric that is not ours, that Nsight Compute says it."""
    entry = registry().get(counter)
    return entry.help if entry else "a metric under its own name: ncu --query-metrics says what it counts"


def _numbers(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split(".") if part.isdigit())
