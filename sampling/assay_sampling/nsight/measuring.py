"""What a selection method needs measured, as command lines of the tools. Pure: one question, one answer.

The agent gives the tools the same options (:mod:`assay_sampling.nsight.commands`), under the baseline: caches
and clocks left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay_sampling.counters import COST_COUNTERS, metric_of, registry
from assay_sampling.errors import CounterUnavailableError, ParameterError
from assay_sampling.nsight import commands
from assay_sampling.nsight.commands import WHOLE, Window
from assay_sampling.nsight.tool import oldest_release, options_since, tool_of_release
from assay_sampling.replay_passes import PassCount, replay_passes
from assay_sampling.samplers import Needs, methods_without_counters, needs

REPORT, PAGE = "counters.ncu-rep", "counters.csv"
# What photon needs beside; no profiler makes it.
BLOCKS = "blocks.csv"
LIGHT_STEM, LIGHT_REPORT, LIGHT = "light", "light.nsys-rep", "light.sqlite"
WORKLOAD = ("./workload",)
# Nsight Compute counts otherwise, or nothing, on what came before Volta.
_FIRST_CAPABILITY = (7, 0)
# Names of the published artifact that no release lists for any GPU.
_UNLISTED = "sass__"


@dataclass(frozen=True)
class CommandLine:
    """A command: what it is for, its words, and the file that its standard output goes to ("": none)."""

    what: str
    argv: tuple[str, ...]
    output: str = ""


@dataclass(frozen=True)
class Measuring:
    """What is to be measured for a method on a GPU, and how.

    Args:
        counters: (canonical name, metric of Nsight Compute) of what is collected; empty where nothing is.
        missing: counters that this GPU or release does not have.
        passes: over each launch.
        of_every_launch: a window of the first launches is not enough.
        commands: in order.
        notes: what must be known beside.
    """

    method: str
    compute_capability: str
    tool_version: str
    counters: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]
    passes: PassCount
    of_every_launch: bool
    commands: tuple[CommandLine, ...]
    notes: tuple[str, ...] = ()


def measuring(
    method: str,
    parameters: Mapping[str, Any],
    *,
    compute_capability: str = "",
    tool_version: str = "",
    window: Window = WHOLE,
    command: Sequence[str] = WORKLOAD,
) -> Measuring:
    """The command lines to select by a method.

    Args:
        compute_capability: of the GPU, such as "7.0"; "": not known, so the commonest names are taken.
        tool_version: the release of Nsight Compute; "": only options that every known one has.
        window: launches that counters are collected for; all by default.
        command: the workload.

    Raises ParameterError for an unknown method, parameter or release, a window where none helps, and a GPU
    that Nsight Compute does not measure; CounterUnavailableError where the GPU lacks a counter.
    """
    wanted = needs(method, parameters)
    if wanted is None:
        raise ParameterError(
            method,
            "this method, of another package, does not say which counters it needs",
            "see its documentation",
        )
    _check_window(method, wanted, window)
    collected, missing = _collected(method, wanted, compute_capability, tool_version)
    light = _light(command)
    detailed = (
        _detailed([metric for _, metric in collected], tool_version, window, command) if collected else ()
    )
    found = Measuring(
        method,
        compute_capability,
        tool_version,
        collected,
        missing,
        replay_passes([name for name, _ in collected], compute_capability),
        wanted.of_every_launch,
        (*detailed, *light, _selecting(method, parameters, window, detailed=bool(collected))),
    )
    return replace(found, notes=tuple(_notes(found, wanted, window)))


def _check_window(method: str, wanted: Needs, window: Window) -> None:
    if not window.count and not window.skip:
        return
    if wanted.nothing:
        cause = f"{method} needs no counters, and the light level is always of every launch"
    elif wanted.of_every_launch:
        cause = f"{method} needs the counters of every launch: a window is not enough"
    else:
        return
    raise ParameterError("--first, --skip", cause, "leave them out, or use a window with the method pks")


def _collected(
    method: str, wanted: Needs, capability: str, version: str
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Counters with their metrics, and the optional ones that there are not."""
    if wanted.nothing:
        return (), ()
    if capability and _numbers(capability) < _FIRST_CAPABILITY:
        raise ParameterError(
            "--gpu",
            f"current releases of Nsight Compute measure compute capability 7.0 and later, not {capability}",
            "measure light runs, and use a method that needs no counters: "
            + ", ".join(methods_without_counters()),
        )
    found, missing = [], []
    for name in dict.fromkeys((*wanted.to_collect(), *COST_COUNTERS)):
        try:
            found.append((name, metric_of(name, capability, version)))
        except CounterUnavailableError:
            if name in wanted.counters:
                raise
            missing.append(name)
    return tuple(found), tuple(missing)


def _detailed(
    metrics: Sequence[str], version: str, window: Window, command: Sequence[str]
) -> tuple[CommandLine, ...]:
    tool = tool_of_release("ncu", version)
    profile = commands.ncu_profile(tool, metrics, command, report=REPORT, window=window)
    return (
        CommandLine("counters, launch by launch", tuple(profile)),
        CommandLine("the same as a page that Assay reads", tuple(commands.ncu_import(tool, REPORT)), PAGE),
    )


def _light(command: Sequence[str]) -> tuple[CommandLine, ...]:
    tool = tool_of_release("nsys")
    return (
        CommandLine("every launch with its time", tuple(commands.nsys_trace(tool, LIGHT_STEM, command))),
        CommandLine(
            "the same as a database that Assay reads", tuple(commands.nsys_export(tool, LIGHT_REPORT, LIGHT))
        ),
    )


def _selecting(method: str, parameters: Mapping[str, Any], window: Window, *, detailed: bool) -> CommandLine:
    if method == "photon" and "bbv" not in parameters:
        parameters = {**parameters, "bbv": BLOCKS}
    given = [word for name, value in parameters.items() for word in ("--param", f"{name}={value}")]
    # ncu numbers the launches of all processes in one row; so they are numbered in each, as nsys does it.
    offset = ["--launch-offset", str(window.skip)] if detailed else []
    files = [PAGE, "--light", LIGHT] if detailed else [LIGHT]
    return CommandLine("the selection", ("assay", "select", method, *files, *given, *offset))


def _notes(found: Measuring, wanted: Needs, window: Window) -> Iterator[str]:
    if wanted.nothing:
        yield f"{found.method} needs no counters: a light run is enough ('assay docs light-only')"
        if wanted.beside:
            yield wanted.beside
    else:
        yield from _notes_on_counters(found, window)
    for option, first in options_since("nsys").items():
        yield f"Nsight Systems from {first} on: add {option}=false, which saves time"


def _notes_on_counters(found: Measuring, window: Window) -> Iterator[str]:
    if found.missing:
        yield f"not to be had on this GPU, and left out: {', '.join(found.missing)}"
    unlisted = [metric for _, metric in found.counters if metric.startswith(_UNLISTED)]
    if unlisted:
        yield (
            f"ncu --query-metrics lists {', '.join(unlisted)} for no GPU; where ncu refuses them, use "
            "features=table2"
        )
    if found.of_every_launch:
        yield "counters of every launch are needed"
    elif not window.count:
        yield "counters of the first launches are enough: --first 1000"
    if found.passes.passes > 1:
        yield "each launch is replayed, and its cycles suffer; a campaign measures them in a run of their own"
    if not found.tool_version:
        yield _about_releases()


def _about_releases() -> str:
    by_release: dict[str, list[str]] = {}
    for option, first in options_since("ncu").items():
        by_release.setdefault(first, []).append(option)
    later = "; ".join(f"{', '.join(options)} from {first} on" for first, options in by_release.items())
    return (
        f"options that every release of Nsight Compute since {oldest_release('ncu')} has; name yours with "
        f"--tool-version, for later ones need more: {later}"
    )


def help_of(counter: str) -> str:
    """What a counter counts."""
    return registry()[counter].help


def _numbers(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split(".") if part.isdigit())
