"""Faults that only several fields of a campaign file together show.

Gangs are runs over several GPUs, some of which the tools cannot make truthfully. Sources: the command line
reference of Nsight Compute 2026, "Mandatory Concurrent Kernels": kernels that wait for kernels of other
processes make no progress if a profiler runs them one after the other, unless it launches them in lock-step.
NVIDIA's MIG user guide: a process sees at most one instance.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePosixPath

from pydantic import ValidationError

from assay_sampling.counters.definitions import FEATURE_SETS, features_of
from assay_sampling.errors import ParameterError
from assay_sampling.launches.table import BASELINE, Condition
from assay_sampling.running.identity import device_key
from assay_server.campaign_file.messages import Fault, shown
from assay_server.campaign_file.sizes import size_faults
from assay_server.campaign_file.spec import (
    Campaign,
    DetailedSpec,
    MethodSpec,
    WorkloadSpec,
)
from assay_server.campaign_file.yaml_source import Place

# What a report calls a rank (assay_server.campaign_file.compiled.rank_name), and whose it is.
_RANK = re.compile(r"(.*)\[rank \d+\]", re.DOTALL)


def campaign_faults(campaign: Campaign) -> Iterator[Fault]:
    """Faults that no single field shows: duplicate names, unknown devices and methods."""
    names: dict[str, int] = {}
    for position, workload in enumerate(campaign.workloads):
        place: Place = ("workloads", position)
        if workload.name in names:
            yield Fault((*place, "name"), f"the workload {workload.name!r} appears twice")
        names.setdefault(workload.name, position)
        yield from _kind_faults(workload, place)
        yield from _tool_faults(campaign, workload, place)
        yield from _recording_faults(workload, place)
    yield from live_faults(campaign)
    yield from size_faults(campaign)
    yield from order_faults(campaign)
    yield from gang_faults(campaign)
    yield from rank_faults(campaign)
    yield from _reference_faults(campaign)
    wrong = False
    for position, method in enumerate(campaign.analysis.methods):
        for fault in _method_faults(method, ("analysis", "methods", position)):
            wrong = True
            yield fault
    if campaign.light_only and not wrong:
        yield from light_only_faults(campaign)


def _kind_faults(workload: WorkloadSpec, place: Place) -> Iterator[Fault]:
    """A workload is either live or recorded."""
    if workload.command is None:
        if not workload.recordings:
            yield Fault(place, "it has nothing to run; give a 'command' or 'recordings'")
        for key in (
            "environment", "timeout_s", "light_limit_s", "memory_limit_bytes", "kineto", "processes",
            "bundle", "requires", "exclusive", "gang",
        ):  # fmt: skip
            if key in workload.model_fields_set:
                yield Fault((*place, key), "this key needs a 'command' in the workload")
        return
    if workload.recordings:
        yield Fault((*place, "recordings"), "the workload also has a 'command'; split it into two workloads")
    yield from command_faults(workload.command, workload.environment, place)
    yield from kineto_faults(workload.kineto or "", place)
    if "\0" in (workload.bundle or ""):
        yield Fault((*place, "bundle"), "a path cannot hold a null character")


def _tool_faults(campaign: Campaign, workload: WorkloadSpec, place: Place) -> Iterator[Fault]:
    """What the tools of a command's light runs cannot do; numbers of processes that cannot be."""
    if workload.command is None:
        return
    if workload.kineto is not None and workload.light_limit_s is not None:
        cause = "the program writes its Kineto trace itself; limit what it records there"
        yield Fault((*place, "light_limit_s"), cause)
    if workload.kineto is None and campaign.light == "cupti" and workload.unit == "operation":
        cause = "'light: cupti' records no operations; write 'light: nsys', or leave out 'unit'"
        yield Fault((*place, "unit"), cause)
    processes, gang = workload.processes or 0, workload.gang or 1
    if processes > 1 and workload.kineto is not None:
        cause = "a Kineto trace is of one process; leave out 'kineto', so that the profiler records them all"
        yield Fault((*place, "processes"), cause)
    if processes and processes % gang and processes != 1:
        cause = f"{processes} processes cannot share {gang} GPUs evenly, so some GPU would have more to do"
        yield Fault((*place, "processes"), cause)


def _recording_faults(workload: WorkloadSpec, place: Place) -> Iterator[Fault]:
    seen: set[tuple[str, Condition]] = set()
    for position, recording in enumerate(workload.recordings):
        here: Place = (*place, "recordings", position)
        if recording.light is None and recording.detailed is None:
            yield Fault(here, "it names no recording; give 'light', or 'detailed', or both")
        key = (recording.device, recording.condition.condition())
        if key in seen:
            yield Fault((*here, "device"), f"{recording.device!r} appears twice under the same condition")
        seen.add(key)
        for level, path in recording.levels():
            if "\0" in path:
                yield Fault((*here, level), "a path cannot hold a null character")


def _reference_faults(campaign: Campaign) -> Iterator[Fault]:
    reference = campaign.analysis.reference
    recorded = [recording.device for workload in campaign.workloads for recording in workload.recordings]
    devices = [*campaign.gpus, *recorded]
    if reference is not None and reference not in devices:
        names = ", ".join(dict.fromkeys(devices))
        kinds = "GPU or recording" if campaign.gpus else "recording"
        yield Fault(("analysis", "reference"), f"no {kinds} has the device {reference!r}; there are {names}")


def _method_faults(method: MethodSpec, place: Place) -> Iterator[Fault]:
    from assay_sampling.methods.registry import (  # noqa: PLC0415 - the methods need their extra, the file does not
        own_parameters,
        samplers,
        unknown_parameters,
    )

    by_name = samplers()
    if method.name not in by_name:
        close = difflib.get_close_matches(method.name, by_name, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(by_name)}"
        yield Fault(place, f"there is no method {method.name!r}; {hint}")
        return
    try:
        sampler = by_name[method.name]
        allowed = ", ".join(sampler.parameters.model_fields)
        for name in unknown_parameters(sampler, method.parameters):
            yield Fault((*place, method.name, name), f"{method.name} has no such parameter; it has {allowed}")
        sampler.parameters.model_validate(own_parameters(sampler, method.parameters))
    except ValidationError as error:
        for details in error.errors():
            at: Place = (*place, method.name, *details["loc"])
            if details["type"] != "extra_forbidden":
                yield Fault(
                    at, f"{details['msg'][:1].lower()}{details['msg'][1:]}, not {shown(details['input'])}"
                )
    except ParameterError as error:
        yield Fault((*place, method.name), f"{error.cause}")


def order_faults(campaign: Campaign) -> Iterator[Fault]:
    """Workloads that come after one that does not exist, or that wait for one another."""
    after = {workload.name: workload.after for workload in campaign.workloads}
    unknown = [
        Fault(("workloads", position, "after", place), f"there is no workload {name!r}")
        for position, workload in enumerate(campaign.workloads)
        for place, name in enumerate(workload.after)
        if name not in after
    ]
    yield from unknown
    circle = set() if unknown else _in_a_circle(after)
    if circle:
        first = next(i for i, workload in enumerate(campaign.workloads) if workload.name in circle)
        cause = f"it would wait for itself: {', '.join(sorted(circle))} wait for one another"
        yield Fault(("workloads", first, "after"), cause)


def _in_a_circle(after: dict[str, list[str]]) -> set[str]:
    """Workloads that could never begin: those left when all that can begin have ended, one after another."""
    sorter = TopologicalSorter(after)
    with contextlib.suppress(CycleError):
        sorter.prepare()
    waiting = set(after)
    while ready := sorter.get_ready():
        waiting.difference_update(ready)
        sorter.done(*ready)
    return waiting


def rank_faults(campaign: Campaign) -> Iterator[Fault]:
    """Ranks that are named twice, and workloads that have the name of another one's rank."""
    named: dict[str, list[str]] = {}
    for workload in campaign.workloads:
        if match := _RANK.fullmatch(workload.name):
            named.setdefault(match[1], []).append(workload.name)
    for position, workload in enumerate(campaign.workloads):
        place = ("workloads", position, "ranks")
        if isinstance(workload.ranks, list) and len({*workload.ranks}) < len(workload.ranks):
            yield Fault(place, "a rank is named twice")
        if workload.ranks == "together":
            continue
        for name in named.get(workload.name, ()):
            yield Fault(place, f"a rank of {workload.name!r} would have the name of the workload {name!r}")


_LIVE_KEYS = ("gpus", "detailed", "light", "conditions", "repeats", "bare", "repeat", "requires", "exclusive")


def live_faults(campaign: Campaign) -> Iterator[Fault]:
    """Faults of the live part of a campaign, except those of its commands."""
    live = next((i for i, workload in enumerate(campaign.workloads) if workload.command is not None), None)
    if live is None:
        for key in _LIVE_KEYS:
            # Recordings may have no detailed level too.
            if key in campaign.model_fields_set and not (key == "detailed" and campaign.light_only):
                yield Fault((key,), "no workload has a 'command', so nothing would run under it")
        return
    if not campaign.gpus:
        cause = "there is no GPU to run it on; give a list of kinds in 'gpus'"
        yield Fault(("workloads", live, "command"), cause)
    yield from gpu_faults(campaign.gpus)
    if campaign.synthetic and campaign.light == "cupti":
        yield Fault(("light",), "virtual GPUs have no CUPTI; their light runs are made with nsys")
    yield from condition_faults(campaign)
    faults = list(detailed_faults(campaign.detailed))
    yield from faults or _uncollected_faults(campaign)


def _uncollected_faults(campaign: Campaign) -> Iterator[Fault]:
    """Methods whose counters no run collects: found here, not after hours of profiling."""
    if campaign.detailed is None:
        return
    collected = {name for counters in campaign.detailed.counters_of_sets() for name in counters}
    for position, method in enumerate(campaign.analysis.methods):
        features = method.parameters.get("features")
        if not isinstance(features, str) or features not in FEATURE_SETS:
            continue
        lacking = [name for name in features_of(features) if name not in collected]
        if lacking:
            yield Fault(
                ("analysis", "methods", position, method.name, "features"),
                f"{features} needs {', '.join(lacking)}, which no detailed run collects; "
                f"name it in 'detailed: {{features: [..., {features}]}}'",
            )


def gpu_faults(gpus: Sequence[str]) -> Iterator[Fault]:
    """Kinds that name nothing, or appear twice, maybe in two spellings."""
    seen: dict[str, str] = {}
    for position, kind in enumerate(gpus):
        key = device_key(kind)
        if not key:
            yield Fault(("gpus", position), f"{kind!r} is not a kind of GPU")
        elif key in seen:
            yield Fault(("gpus", position), f"{kind!r} is the same kind of GPU as {seen[key]!r}")
        seen.setdefault(key, kind)


def condition_faults(campaign: Campaign) -> Iterator[Fault]:
    """Conditions that are the baseline, appear twice, or are impossible."""
    seen: set[Condition] = set()
    for position, spec in enumerate(campaign.conditions):
        place: Place = ("conditions", position)
        condition = spec.condition()
        if spec.sm_share == "partition" and spec.sm_percent == 100:
            yield Fault(
                (*place, "sm_share"), "a partition holds part of the SMs; give an sm_percent below 100"
            )
        elif spec.sm_share == "partition" and campaign.synthetic:
            yield Fault(
                (*place, "sm_share"), "virtual GPUs have no static partitions of their SMs; leave it out"
            )
        elif condition == BASELINE:
            yield Fault(place, "this is the baseline, which always runs; list only other conditions")
        elif spec.flushed and spec.sm_percent < 100:
            yield Fault(
                place,
                "only Nsight Compute flushes caches, and at a share of the SMs it profiles one launch of "
                "each process; write two conditions, one for each",
            )
        elif spec.flushed and campaign.light_only:
            yield Fault(
                place,
                "the cost of flushed caches needs counters, and 'detailed: none' collects none; leave out "
                "the condition",
            )
        elif condition in seen:
            yield Fault(place, f"the condition {condition} appears twice")
        seen.add(condition)


def detailed_faults(detailed: DetailedSpec | None) -> Iterator[Fault]:
    """Feature sets that do not exist, sets that appear twice, a share that a fixed window cannot keep."""
    if detailed is None:
        return
    if detailed.first and detailed.unseen_percent is not None:
        yield Fault(
            ("detailed", "unseen_percent"),
            f"the window is fixed at its first {detailed.first:,} launches; write 'first: auto', so that "
            "slices are chosen until this share is reached, or leave it out",
        )
    if len(set(detailed.sets)) < len(detailed.sets):
        yield Fault(("detailed", "sets"), f"{detailed.sets[0]!r} appears twice")
    for features in detailed.features:
        if features not in FEATURE_SETS:
            cause = f"there is no feature set {features!r}; there are {', '.join(FEATURE_SETS)}"
            yield Fault(("detailed", "features"), cause)


def command_faults(command: Sequence[str], environment: dict[str, str], place: Place) -> Iterator[Fault]:
    """Words and variables with which no process can start."""
    if command and not command[0]:
        yield Fault((*place, "command", 0), "the program's name is empty")
    for position, word in enumerate(command):
        if "\0" in word:
            yield Fault((*place, "command", position), "a word of a command cannot hold a null character")
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name + value:
            yield Fault(
                (*place, "environment", name),
                f"{name!r} cannot be set: it is empty or has '=' or a null in it",
            )


def kineto_faults(name: str, place: Place) -> Iterator[Fault]:
    """A trace that is not a single file in the folder where the command runs."""
    path = PurePosixPath(name)
    if "\0" in name:
        yield Fault((*place, "kineto"), "a path cannot hold a null character")
    if path.is_absolute() or ".." in path.parts:
        yield Fault(
            (*place, "kineto"), f"{name!r} is outside the folder of this file, where the command runs"
        )
    if set(name) & set("*?["):
        yield Fault(
            (*place, "kineto"),
            f"{name!r} is a pattern, and traces of several processes are not joined; name one file",
        )


def gang_faults(campaign: Campaign) -> Iterator[Fault]:
    """What keeps workloads over several GPUs from being measured, each with the reason."""
    for position, workload in enumerate(campaign.workloads):
        if workload.gang is not None and workload.command is not None:
            for cause in _causes(campaign, workload):
                yield Fault(("workloads", position, "gang"), cause)


def _causes(campaign: Campaign, workload: WorkloadSpec) -> Iterator[str]:
    if campaign.detailed is not None:
        yield (
            "counters of several GPUs at once are not collected: Nsight Compute runs kernels one after the "
            "other, so kernels that wait for those of other GPUs (NCCL) would hang; write 'detailed: none' "
            "in the campaign, and measure its counters on one GPU in another one"
        )
    if campaign.light == "cupti":
        yield "Assay's tracer records one GPU; leave out 'light: cupti'"
    if workload.kineto is not None:
        yield "a Kineto trace is of one process; leave out 'kineto', so that Nsight Systems records them all"
    if any(condition.condition().sm_percent != 100 for condition in campaign.conditions):
        yield "a share of the SMs (MPS) is that of one GPU; put it into another campaign"
    requires = workload.requires or campaign.requires
    if requires is not None and requires.mig:
        yield "a process sees one MIG instance, so instances cannot work together; leave out 'mig: true'"


def light_only_faults(campaign: Campaign) -> Iterator[Fault]:
    """Detailed recordings, and methods that the analysis would have to refuse.

    Raises ParameterError for a method or parameter that does not exist: check these first.
    """
    from assay_sampling.methods.registry import (  # noqa: PLC0415 - they need their extra
        methods_without_counters,
        needs,
    )

    for position, workload in enumerate(campaign.workloads):
        for number, recording in enumerate(workload.recordings):
            if recording.detailed is not None:
                yield Fault(
                    ("workloads", position, "recordings", number, "detailed"),
                    "the campaign says 'detailed: none'; leave out one of the two",
                )
    for position, method in enumerate(campaign.methods):
        method_needs = needs(method.name, method.parameters)
        if method_needs is not None and not method_needs.nothing:
            names = method_needs.to_collect()
            counters = f"the counter {names[0]}" if len(names) == 1 else f"{len(names)} counters"
            yield Fault(
                ("analysis", "methods", position),
                f"{method.name} needs {counters}, and 'detailed: none' collects none; "
                f"methods that need none are {', '.join(methods_without_counters())}",
            )
