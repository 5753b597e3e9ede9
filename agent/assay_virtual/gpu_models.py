"""Virtual GPUs behind the agent's interface: see :mod:`assay_agent.gpus.model`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from assay_agent.gpus.model import GpuModels, ModelledGPU
from assay_agent.gpus.sensors import Reading
from assay_sampling.launches.table import ClockCondition, Device
from assay_virtual.architectures import architecture
from assay_virtual.model.gpu import VirtualGPU
from assay_virtual.sensors import IDLE, VirtualSensors, parse_faults
from assay_virtual.sensors import VARIABLE as SENSORS_VARIABLE
from assay_virtual.tools.environment import (
    CLOCK_VARIABLE,
    FAULTS_VARIABLE,
    GANG_VARIABLE,
    GPU_VARIABLE,
    NCU_VERSION_VARIABLE,
    NSYS_VERSION_VARIABLE,
    SM_PERCENT_VARIABLE,
    lost_by_switch,
    refuses_clocks,
)
from assay_virtual.tools.scripts import BARE_PROGRAM, write_tool_scripts

_AGENT_IN_UUID = 8


class VirtualModel:
    """One virtual GPU; see :class:`assay_agent.gpus.model.GpuModel`."""

    own_variables: ClassVar[frozenset[str]] = frozenset(
        (GPU_VARIABLE, GANG_VARIABLE, SM_PERCENT_VARIABLE, CLOCK_VARIABLE)
    )
    version_variables: ClassVar[tuple[str, ...]] = (NCU_VERSION_VARIABLE, NSYS_VERSION_VARIABLE)
    refusal_variables: ClassVar[tuple[str, ...]] = (NCU_VERSION_VARIABLE, FAULTS_VARIABLE)

    def __init__(self, kind: str, uuid: str) -> None:
        self._kind, self._uuid = kind, uuid

    def share_variables(self, sm_percent: float) -> dict[str, str]:
        return {SM_PERCENT_VARIABLE: f"{sm_percent:g}"}

    def gang_variables(self, gpus: Sequence[Mapping[str, str]]) -> dict[str, str]:
        return {GANG_VARIABLE: json.dumps([json.loads(gpu[GPU_VARIABLE]) for gpu in gpus])}

    def clock_variables(self, clock: ClockCondition, environment: Mapping[str, str]) -> dict[str, str] | None:
        return None if refuses_clocks(environment) else {CLOCK_VARIABLE: clock}

    def bare_command(self, argv: Sequence[str]) -> list[str]:
        return [BARE_PROGRAM, *argv]

    def program(self, argv: Sequence[str]) -> str:
        workload = next((text for text in argv if text.endswith(".toml")), None)
        return argv[0] if workload is None else os.path.join(".", workload)  # noqa: PTH118

    def open_sensors(self, environment: Mapping[str, str]) -> VirtualSensors:
        faults = parse_faults(environment.get(SENSORS_VARIABLE, ""))
        if lost_by_switch(environment, self._uuid):
            faults += ("gpu_lost",)
        return VirtualSensors(self._uuid, architecture(self._kind).boost_clock_hz / 1e6, faults)

    def idle_reading(self) -> Reading:
        return IDLE


class VirtualModels:
    """The kinds of docs/virtual-gpu.md; see :class:`assay_agent.gpus.model.GpuModels`."""

    def kind(self, name: str) -> str:
        return architecture(name).kind

    def gpu(self, kind: str, number: int, agent_id: str = "") -> ModelledGPU:
        gpu = VirtualGPU(kind, number)
        # As on a real box, the only GPU that the tool sees has ordinal 0.
        device = Device(
            index=0,
            name=gpu.device.name,
            uuid="-".join(filter(None, (gpu.device.uuid, agent_id[:_AGENT_IN_UUID]))),
            compute_capability=gpu.device.compute_capability,
            sm_count=gpu.device.sm_count,
        )
        described = {"architecture": kind, "seed": gpu.seed, "index": 0, "uuid": device.uuid}
        variables = {GPU_VARIABLE: json.dumps(described)}
        return ModelledGPU(device, gpu.architecture.memory_bytes, variables, VirtualModel(kind, device.uuid))

    def write_tools(self, folder: Path) -> None:
        write_tool_scripts(folder)


MODELS: GpuModels = VirtualModels()
