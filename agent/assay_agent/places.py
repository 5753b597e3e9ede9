"""The places of an agent that take one run at a time: players of recordings, GPUs, virtual GPUs.

A place is what the server is told of it (a slot) and the profilers that measure there. A GPU is offered
with the profilers whose tools are there and those that need none; a virtual GPU with the stand-ins of both
tools, which are written into a private folder of the agent.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay_agent.conditions import makes_partitions, undo_leftovers
from assay_agent.config import VirtualGPUs
from assay_agent.durable import storage_errors
from assay_agent.inventory import InstalledDevice, Inventory
from assay_agent.profilers.base import Profiler
from assay_agent.profilers.environment import LIBRARIES, MeasuredGPU
from assay_agent.profilers.offered import offered_profilers, told_missing
from assay_agent.profilers.tool_version import ToolBox
from assay_agent.quarantine import Quarantined
from assay_agent.slot_health import slot_of
from assay_agent.telemetry.settings import TelemetrySettings
from assay_protos import agent_pb2, common_pb2
from assay_sampling.launch_table import Device

_log = logging.getLogger(__name__)

_AGENT_IN_UUID = 8
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Place:
    """A slot as the server knows it, and the profilers that measure there, by name."""

    slot: agent_pb2.Slot
    profilers: Mapping[str, Profiler]


def recorded_places(count: int, profilers: Mapping[str, Profiler]) -> list[Place]:
    """Players of recordings; none where the profiler for them is not there."""
    if "recorded" not in profilers:
        return []
    return [
        Place(agent_pb2.Slot(slot_id=f"recorded-{i}", profilers=["recorded"]), profilers)
        for i in range(count)
    ]


def installed_places(
    inventory: Inventory, state: Path, telemetry: TelemetrySettings | None = None
) -> Iterator[Place]:
    """The GPUs of the box that can be asked and are this agent's, each for what the box's tools can measure.

    What an earlier process of this agent left in force on them is undone first.
    """
    undo_leftovers(state)
    tools = ToolBox()
    path = os.environ.get("PATH", _SYSTEM_PATH)
    libraries = os.environ.get(LIBRARIES, "")
    for device in inventory.devices:
        if device.problem or device.left_out or not device.uuid:
            why = device.problem or device.left_out or "the driver does not say its UUID"
            _log.warning("GPU %d takes no runs: %s", device.index, why)
            continue
        gpu = MeasuredGPU(
            _installed(device),
            synthetic=False,
            path=path,
            variables={LIBRARIES: libraries} if libraries else {},
            telemetry=telemetry or TelemetrySettings(),
            driver_version=inventory.driver_version,
        )
        yield _gpu_place(gpu, tools, state, memory_bytes=device.memory_bytes, index=device.index)


def missing_places(
    quarantined: Sequence[Quarantined], inventory: Inventory, places: Sequence[Place]
) -> Iterator[Place]:
    """GPUs of the box that were lost and are not to be found any more: places without any profiler."""
    known = {place.slot.slot_id for place in places}
    known |= {device.uuid for device in inventory.devices if device.left_out}
    for entry in quarantined:
        if not entry.synthetic and entry.gpu not in known:
            yield Place(slot_of(entry), {})


def virtual_places(
    groups: Sequence[VirtualGPUs],
    state: Path,
    agent_id: str = "",
    telemetry: TelemetrySettings | None = None,
) -> Iterator[Place]:
    """Virtual GPUs, numbered within their kind. Raises StorageError where their tools cannot be written.

    The beginning of ``agent_id`` is part of their UUIDs, so that no two agents offer the same GPU.
    """
    if not groups:
        return
    from assay_agent.virtual import VirtualGPU  # noqa: PLC0415
    from assay_agent.virtual.tools import write_tool_scripts  # noqa: PLC0415

    folder = state / "virtual-tools"
    with storage_errors(str(folder)):
        write_tool_scripts(folder)
        folder.chmod(0o700)
    tools, path = ToolBox(), f"{folder}:{_SYSTEM_PATH}"
    numbers: dict[str, int] = {}
    for group in groups:
        for _ in range(group.count):
            number = numbers.setdefault(group.kind, 0)
            numbers[group.kind] += 1
            model = VirtualGPU(group.kind, number)
            # As on a real box: the one GPU that the tool sees has ordinal 0 there.
            device = Device(
                index=0,
                name=model.device.name,
                uuid="-".join(filter(None, (model.device.uuid, agent_id[:_AGENT_IN_UUID]))),
                compute_capability=model.device.compute_capability,
                sm_count=model.device.sm_count,
            )
            described = {"architecture": group.kind, "seed": model.seed, "index": 0, "uuid": device.uuid}
            gpu = MeasuredGPU(
                device,
                synthetic=True,
                path=path,
                variables={"ASSAY_VIRTUAL_GPU": json.dumps(described)},
                scope=str(state.absolute()),
                telemetry=telemetry or TelemetrySettings(),
            )
            memory_bytes = model.architecture.memory_bytes
            yield _gpu_place(gpu, tools, state, memory_bytes=memory_bytes, index=number)


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
    device = common_pb2.Device(
        index=index,
        name=gpu.device.name,
        uuid=gpu.device.uuid,
        compute_capability=gpu.device.compute_capability,
        sm_count=gpu.device.sm_count or 0,
        memory_bytes=memory_bytes,
    )
    slot = agent_pb2.Slot(
        slot_id=gpu.device.uuid,
        device=device,
        profilers=list(profilers),
        synthetic=gpu.synthetic,
        sm_partitions=makes_partitions(gpu),
    )
    return Place(slot, profilers)
