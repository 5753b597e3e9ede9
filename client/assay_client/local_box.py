"""What this box is and has, as server and agent see it: the GPUs and tools of a command, what a run rests on.

With ``local`` and ``local_service`` the only module that imports server and agent, when it is used.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay_client.one_box.basis import Basis, files_of, text_hash
from assay_client.one_box.command import CommandBox
from assay_client.one_box.unfinished import Say
from assay_sampling.errors import MissingExtraError, NotReadyError, ParameterError

if TYPE_CHECKING:
    from assay_server.campaign_file.reading import CampaignFile

_NO_GPU = (
    "see: assay doctor --for agent; without a GPU a workload file runs on a virtual one: "
    "assay run --virtual V100 -- WORKLOAD.toml (assay docs virtual-gpu)"
)
_NO_LIGHT = "install Nsight Systems and put its folder into the PATH, or: python -m assay_agent.tracer.build"


def missing_extra(
    error: ModuleNotFoundError, program: str = "assay run", extra: str = "all"
) -> MissingExtraError:
    """The error of a program without the extra that a module belongs to."""
    return MissingExtraError(program, error.name or "", extra)


def basis_of(text: str, file: CampaignFile, folder: Path, virtual_gpus: Sequence[str]) -> Basis:
    """What a campaign's numbers would rest on here and now."""
    workloads = file.campaign.workloads
    recordings = [path for each in workloads for of in each.recordings for _, path in of.levels()]
    files = files_of([each.command for each in workloads if each.command], recordings, folder)
    if not file.campaign.live_workloads:
        return Basis(text_hash(text), files)
    try:
        from assay_agent.gpus.inventory import read_inventory  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    box = read_inventory()
    gpus = [f"{device.name} ({device.uuid})" for device in box.devices if not device.left_out]
    gpus += [f"virtual {kind}" for kind in sorted(virtual_gpus)]
    return Basis(text_hash(text), files, box.driver_version, tuple(gpus))


def command_box(virtual_gpus: Sequence[str], say: Say) -> CommandBox:
    """What this box measures a person's command with; ``say`` gets what it lacks and what is done instead.

    Raises NotReadyError without a GPU or any profiler of light runs, ParameterError for a kind of virtual GPU
    that does not exist, MissingExtraError.
    """
    try:
        from assay_agent.config import VirtualGPUs  # noqa: PLC0415
        from assay_agent.gpus.inventory import read_inventory  # noqa: PLC0415
        from assay_agent.tracer.build import find_tracer  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra(error) from error
    if virtual_gpus:
        kinds = dict.fromkeys(VirtualGPUs.parse(each).kind for each in virtual_gpus)
        return CommandBox(tuple(kinds), synthetic=True)
    box = read_inventory()
    names = list(dict.fromkeys(each.name for each in box.devices if not (each.left_out or each.problem)))
    if not names:
        left_out = next((each.left_out or each.problem for each in box.devices), "")
        raise NotReadyError(
            "this machine", f"it has no GPU to measure on: {left_out or box.no_device_reason}", _NO_GPU
        )
    if len(names) > 1:
        say(f"this machine has {', '.join(names)}: the command is measured on each")
    traced = find_tracer() is not None
    if shutil.which("nsys") is None:
        if not traced:
            cause = "nsys (Nsight Systems) is not in the PATH, and the tracer is not built"
            raise NotReadyError("this machine", cause, _NO_LIGHT)
        say("nsys (Nsight Systems) is not in the PATH: the light run is made by Assay's own tracer")
    counters = shutil.which("ncu") is not None
    if not counters:
        say("ncu (Nsight Compute) is not in the PATH: no counters, so selections use times alone")
    return CommandBox(tuple(names), counters=counters, operations=shutil.which("nsys") is not None)


def gpu_names_here() -> tuple[str, ...]:
    """Names of the GPUs of this machine that can be measured on, each once; raises MissingExtraError."""
    try:
        from assay_agent.gpus.inventory import read_inventory  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra(error, "assay init", "agent") from error
    devices = read_inventory().devices
    return tuple(dict.fromkeys(each.name for each in devices if not (each.left_out or each.problem)))


def virtual_kind(name: str, option: str) -> str:
    """The kind of virtual GPU of a name; raises ParameterError with the ``option`` that named it,
    MissingExtraError.
    """
    try:
        from assay_agent.config import VirtualGPUs  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra(error, "assay init", "agent") from error
    try:
        return VirtualGPUs(name).kind
    except ParameterError as error:
        raise ParameterError(option, f"there is no virtual GPU {name!r}", error.remedy) from error


def counter_seconds(launches: int, seconds: float, slices_of_runs: Sequence[int]) -> float:
    """What runs with counters would take, by the assumptions of ``assay plan`` and what a light run took.

    Args:
        launches: of the light run.
        seconds: that its command ran for.
        slices_of_runs: how many slices each run with counters has, in its order: cycles, then features.
    """
    from assay_server.campaign_file.slices import (  # noqa: PLC0415
        LEAST_SLICE_LAUNCHES,
        LightPace,
        cost_from_light,
    )
    from assay_server.campaign_file.spec import DetailedSpec  # noqa: PLC0415

    sets = DetailedSpec().counters_of_sets()
    pace = LightPace(launches, seconds, 0.0)
    profiled = min(launches, LEAST_SLICE_LAUNCHES)
    total = 0.0
    for number, slices in enumerate(slices_of_runs):
        cost = cost_from_light(sets[number] if number < len(sets) else sets[0], pace)
        # Slices lie anywhere: on average a process skips half of the launches before its own.
        total += slices * cost.seconds((launches - profiled) // 2, profiled)
    return total


def published_files(state: Path, run_id: str) -> list[Path]:
    """The files of a run's launches in a state folder of ``assay run``, slice by slice."""
    return sorted((state / "server" / "records" / run_id).glob("slice-*.parquet"))
