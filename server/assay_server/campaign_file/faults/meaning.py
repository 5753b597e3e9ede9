"""Faults that only several fields of a campaign file together show."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from pydantic import ValidationError

from assay_sampling.errors import ParameterError
from assay_sampling.launches.table import Condition
from assay_server.campaign_file.faults.live import (
    command_faults,
    gang_faults,
    kineto_faults,
    light_only_faults,
    live_faults,
)
from assay_server.campaign_file.faults.messages import Fault, shown
from assay_server.campaign_file.faults.sizes import size_faults
from assay_server.campaign_file.spec import Campaign, MethodSpec, WorkloadSpec
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
        yield from _unit_faults(campaign, workload, place)
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
            "environment", "timeout_s", "light_limit_s", "memory_limit_bytes", "kineto", "processes", "bundle"
        ):  # fmt: skip
            if key in workload.model_fields_set:
                yield Fault((*place, key), "this key needs a 'command' in the workload")
        return
    if workload.recordings:
        yield Fault((*place, "recordings"), "the workload also has a 'command'; split it into two workloads")
    yield from command_faults(workload.command, workload.environment, place)
    yield from kineto_faults(workload.kineto or "", place)
    if workload.kineto is not None and workload.light_limit_s is not None:
        cause = "the program writes its Kineto trace itself; limit what it records there"
        yield Fault((*place, "light_limit_s"), cause)
    yield from _process_faults(workload, place)
    if "\0" in (workload.bundle or ""):
        yield Fault((*place, "bundle"), "a path cannot hold a null character")


def _unit_faults(campaign: Campaign, workload: WorkloadSpec, place: Place) -> Iterator[Fault]:
    """The tracer records no operations."""
    traced = workload.command is not None and workload.kineto is None and campaign.light == "cupti"
    if traced and workload.unit == "operation":
        cause = "'light: cupti' records no operations; write 'light: nsys', or leave out 'unit'"
        yield Fault((*place, "unit"), cause)


def _process_faults(workload: WorkloadSpec, place: Place) -> Iterator[Fault]:
    """Numbers of processes that cannot be."""
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
        known = ", ".join(dict.fromkeys(devices))
        kinds = "GPU or recording" if campaign.gpus else "recording"
        yield Fault(("analysis", "reference"), f"no {kinds} has the device {reference!r}; there are {known}")


def _method_faults(method: MethodSpec, place: Place) -> Iterator[Fault]:
    from assay_sampling.methods.registry import (  # noqa: PLC0415 - the methods need their extra, the file does not
        own_parameters,
        samplers,
        unknown_parameters,
    )

    known = samplers()
    if method.name not in known:
        close = difflib.get_close_matches(method.name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
        yield Fault(place, f"there is no method {method.name!r}; {hint}")
        return
    try:
        sampler = known[method.name]
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
    """Faults of ``after``, and of keys about GPUs in workloads that use none."""
    after = {workload.name: workload.after for workload in campaign.workloads}
    wrong = False
    for position, workload in enumerate(campaign.workloads):
        for place, name in enumerate(workload.after):
            if name not in after:
                wrong = True
                yield Fault(("workloads", position, "after", place), f"there is no workload {name!r}")
        if workload.command is None:
            for key in ("requires", "exclusive", "gang"):
                if key in workload.model_fields_set:
                    yield Fault(("workloads", position, key), "this key needs a 'command' in the workload")
    if not wrong:
        circle = _in_a_circle(after)
        for position, workload in enumerate(campaign.workloads):
            if workload.name in circle:
                names = ", ".join(sorted(circle))
                cause = f"it would wait for itself: {names} wait for one another"
                yield Fault(("workloads", position, "after"), cause)
                return


def _in_a_circle(after: dict[str, list[str]]) -> set[str]:
    """Workloads that could never begin: those left when all that can begin have ended, one after another."""
    awaited = {name: set(first) for name, first in after.items()}
    waiting: dict[str, list[str]] = {}
    for name, first in awaited.items():
        for each in first:
            waiting.setdefault(each, []).append(name)
    ended = [name for name, first in awaited.items() if not first]
    for name in ended:  # grows as more of them can begin
        for other in waiting.get(name, ()):
            awaited[other].discard(name)
            if not awaited[other]:
                ended.append(other)
    return set(after).difference(ended)


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
