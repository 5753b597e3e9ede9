"""The places of an agent that take one run at a time: players of recordings, GPUs, virtual GPUs.

A place is a slot, as the server knows it, and the profilers that measure there. A GPU is offered with the
profilers whose tools are installed and those that need no tool; a virtual GPU with stand-ins of both tools,
which are written into a private folder of the agent.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay_agent.conditions import makes_partitions, undo_leftovers
from assay_agent.config import VirtualGPUs
from assay_agent.execution.environment import LIBRARIES, MeasuredGPU
from assay_agent.execution.tool_version import ToolBox
from assay_agent.gpus.chosen import ChosenGpus
from assay_agent.gpus.model import gpu_models
from assay_agent.gpus.telemetry_settings import TelemetrySettings
from assay_agent.health.quarantine import Quarantined
from assay_agent.health.slot_health import slot_of
from assay_agent.profilers.offered import offered_profilers, told_missing
from assay_agent.profilers.seam import Profiler
from assay_core.files.durable import storage_errors
from assay_core.records.machine import InstalledDevice, Inventory, Slot
from assay_sampling.running.identity import Device

_log = logging.getLogger(__name__)

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Place:
    """A slot as the server knows it, the profilers that measure there, by name, and its GPU if any."""

    slot: Slot
    profilers: Mapping[str, Profiler]
    gpu: MeasuredGPU | None = None


def recorded_places(count: int, profilers: Mapping[str, Profiler]) -> list[Place]:
    """Players of recordings; empty without the profiler for them."""
    if "recorded" not in profilers:
        return []
    return [Place(Slot(f"recorded-{i}", ("recorded",)), profilers) for i in range(count)]


def installed_places(
    inventory: Inventory, state: Path, telemetry: TelemetrySettings | None = None
) -> Iterator[Place]:
    """The GPUs of the box that answer and belong to this agent, with what the box's tools can measure.

    First undoes what an earlier process of this agent left in force on them.
    """
    undo_leftovers(state)
    tools = ToolBox()
    path = os.environ.get("PATH", _SYSTEM_PATH)
    libraries = os.environ.get(LIBRARIES, "")
    box: dict[str, MeasuredGPU] = {}
    for device in inventory.devices:
        if device.problem or device.left_out or not device.uuid:
            why = device.problem or device.left_out or "the driver does not say its UUID"
            _log.warning("GPU %d takes no runs: %s", device.index, why)
            continue
        gpu = MeasuredGPU(
            _installed(device),
            path=path,
            variables={LIBRARIES: libraries} if libraries else {},
            telemetry=telemetry or TelemetrySettings(),
            driver_version=inventory.driver_version,
            box=box,
        )
        box[device.uuid] = gpu
        yield _gpu_place(gpu, tools, state, memory_bytes=device.memory_bytes, index=device.index)


def missing_places(
    quarantined: Sequence[Quarantined], inventory: Inventory, places: Sequence[Place]
) -> Iterator[Place]:
    """GPUs of the box that were lost and have disappeared: places without profilers."""
    present_ids = {place.slot.slot_id for place in places}
    present_ids |= {device.uuid for device in inventory.devices if device.left_out}
    for entry in quarantined:
        if not entry.synthetic and entry.gpu not in present_ids:
            yield Place(slot_of(entry), {})


def virtual_places(
    groups: Sequence[VirtualGPUs],
    state: Path,
    agent_id: str = "",
    telemetry: TelemetrySettings | None = None,
) -> Iterator[Place]:
    """Virtual GPUs, numbered within their kind. Raises StorageError if their tools cannot be written.

    The beginning of ``agent_id`` is part of their UUIDs, so that no two agents offer the same GPU.
    """
    if not groups:
        return
    models = gpu_models()
    folder = state / "virtual-tools"
    with storage_errors(str(folder)):
        models.write_tools(folder)
        folder.chmod(0o755)  # within the state folder, which nobody else may enter
    tools, path = ToolBox(), f"{folder}:{_SYSTEM_PATH}"
    numbers: dict[str, int] = {}
    box: dict[str, MeasuredGPU] = {}
    for group in groups:
        for _ in range(group.count):
            number = numbers.setdefault(group.kind, 0)
            numbers[group.kind] += 1
            made = models.gpu(group.kind, number, agent_id)
            gpu = MeasuredGPU(
                made.device,
                path=path,
                variables=made.variables,
                scope=str(state.absolute()),
                telemetry=telemetry or TelemetrySettings(),
                model=made.model,
                box=box,
            )
            box[gpu.device.uuid] = gpu
            yield _gpu_place(gpu, tools, state, memory_bytes=made.memory_bytes, index=number)


def chosen_places(places: Sequence[Place], chosen: ChosenGpus | None) -> list[Place]:
    """The places without virtual GPUs that were not chosen; installed ones are left out already.

    Raises NotReadyError if GPUs were chosen and none of them is there.
    """
    if chosen is None:
        return list(places)
    virtual: dict[str, list[InstalledDevice]] = {}
    for place in places:
        if place.slot.synthetic and place.slot.device is not None:
            virtual.setdefault(place.slot.device.name, []).append(place.slot.device)
    left_out = {
        device.uuid
        for devices in virtual.values()
        for device, why in zip(devices, chosen.reasons(devices), strict=True)
        if why
    }
    remaining_places = [place for place in places if place.slot.slot_id not in left_out]
    chosen.require_one([place.slot.device for place in remaining_places if place.slot.device is not None])
    return remaining_places


def _installed(device: InstalledDevice) -> Device:
    return Device(
        index=0,
        name=device.name,
        uuid=device.uuid,
        compute_capability=device.compute_capability,
        sm_count=device.sm_count or None,
    )


def _gpu_place(gpu: MeasuredGPU, tools: ToolBox, state: Path, *, memory_bytes: int, index: int) -> Place:
    profilers = offered_profilers(gpu, tools, state)
    missing = told_missing(profilers)
    if missing:
        _log.warning("GPU %s (%s) takes %s", gpu.device.uuid, gpu.device.name, missing)
    device = InstalledDevice(
        index=index,
        name=gpu.device.name,
        uuid=gpu.device.uuid,
        compute_capability=gpu.device.compute_capability,
        sm_count=gpu.device.sm_count or 0,
        memory_bytes=memory_bytes,
    )
    slot = Slot(
        slot_id=gpu.device.uuid,
        device=device,
        profilers=tuple(profilers),
        synthetic=gpu.synthetic,
        sm_partitions=makes_partitions(gpu),
        gangs=True,
    )
    return Place(slot, profilers, gpu)
