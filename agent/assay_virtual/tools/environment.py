"""The stand-ins' environment variables: the GPU, its share of the SMs, faults, versions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from assay_sampling.errors import ParameterError
from assay_sampling.running.identity import ClockCondition
from assay_virtual.tools.faults import Faults, parse_faults

if TYPE_CHECKING:
    from assay_virtual.model.gpu import VirtualGPU

GPU_VARIABLE = "ASSAY_VIRTUAL_GPU"
GANG_VARIABLE = "ASSAY_VIRTUAL_GANG"
SM_PERCENT_VARIABLE = "ASSAY_VIRTUAL_SM_PERCENT"
CLOCK_VARIABLE = "ASSAY_VIRTUAL_CLOCK"
FAULTS_VARIABLE = "ASSAY_VIRTUAL_FAULTS"
NCU_VERSION_VARIABLE = "ASSAY_VIRTUAL_NCU_VERSION"
NSYS_VERSION_VARIABLE = "ASSAY_VIRTUAL_NSYS_VERSION"
DEFAULT_NCU_VERSION = "2024.1.1.0"
DEFAULT_NSYS_VERSION = "2023.4.4.54"


@dataclass(frozen=True)
class VirtualEnvironment:
    """One virtual GPU as the tools see it; ``sm_percent`` is in (0, 100].

    ``clock``: the lock of its SM clock from outside; Nsight Compute's own option overrides it. ``gang``: all
    GPUs of a run over several, each with its UUID, in the order of their ordinals; else only this one.
    """

    gpu: VirtualGPU
    uuid: str
    sm_percent: float
    faults: Faults
    clock: ClockCondition = "none"
    gang: tuple[tuple[VirtualGPU, str], ...] = ()

    @property
    def gpus(self) -> tuple[tuple[VirtualGPU, str], ...]:
        """The GPUs that processes see, and their UUIDs."""
        return self.gang or ((self.gpu, self.uuid),)

    def ordinal_of(self, process: int) -> int:
        """The ordinal of the GPU that a rank uses: ranks go round."""
        return process % len(self.gpus)

    @property
    def loses_a_gpu(self) -> bool:
        """Whether a fault switch loses one of them."""
        return any(self.faults.loses(uuid) for _, uuid in self.gpus)


def virtual_environment(variables: Mapping[str, str]) -> VirtualEnvironment:
    """Read the environment; raises ParameterError naming the variable that is wrong or missing."""
    gpu, uuid = _gpu(variables.get(GPU_VARIABLE, ""))
    faults = parse_faults(_fault_text(variables.get(FAULTS_VARIABLE, "")))
    gang = _gang(variables.get(GANG_VARIABLE, ""))
    return VirtualEnvironment(gpu, uuid, _sm_percent(variables, gpu), faults, _clock(variables), gang)


def _gang(text: str) -> tuple[tuple[VirtualGPU, str], ...]:
    """The GPUs of a run over several; empty for a run on one."""
    if not text:
        return ()
    try:
        listed = json.loads(text)
    except ValueError as error:
        raise ParameterError(GANG_VARIABLE, f"it is not JSON ({error})") from error
    return tuple(_gpu(json.dumps(each)) for each in listed)


def lost_by_switch(variables: Mapping[str, str], uuid: str) -> bool:
    """Whether the workload's fault switches lose the GPU; its sensors must then agree."""
    try:
        return parse_faults(_fault_text(variables.get(FAULTS_VARIABLE, ""))).loses(uuid)
    except ParameterError:  # the tools refuse them with their own message
        return False


def refuses_clocks(variables: Mapping[str, str]) -> bool:
    """Whether the workload's fault switches keep the clocks of a light run from being locked."""
    try:
        return "clock_unlocked" in parse_faults(_fault_text(variables.get(FAULTS_VARIABLE, "")))
    except ParameterError:
        return False


def ncu_version(variables: Mapping[str, str]) -> str:
    """The version that the stand-in ``ncu`` pretends to be."""
    return _version(variables, NCU_VERSION_VARIABLE, DEFAULT_NCU_VERSION)


def nsys_version(variables: Mapping[str, str]) -> str:
    """The version that the stand-in ``nsys`` pretends to be."""
    return _version(variables, NSYS_VERSION_VARIABLE, DEFAULT_NSYS_VERSION)


def version_key(version: str) -> tuple[int, int]:
    """Year and release of a version such as "2024.1.1.0", for comparisons."""
    year, release, *_ = version.split(".")
    return int(year), int(release)


def _gpu(text: str) -> tuple[VirtualGPU, str]:
    from assay_virtual.model.gpu import VirtualGPU  # noqa: PLC0415 - not to print a version

    example = '{"architecture": "V100", "seed": 0, "index": 0}'
    try:
        document = json.loads(text)
        architecture, seed = document["architecture"], document.get("seed", 0)
        index = document.get("index", 0)
        if not (isinstance(architecture, str) and isinstance(seed, int) and isinstance(index, int)):
            raise TypeError("a value has the wrong type")
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        cause = f"it does not name a virtual GPU ({error})" if text else "it is not set"
        raise ParameterError(GPU_VARIABLE, cause, f"set it to a JSON object such as {example}") from error
    gpu = VirtualGPU(architecture, index, seed=seed)
    return gpu, str(document.get("uuid") or gpu.device.uuid)


def _fault_text(text: str) -> str:
    """The list of switches, or the content of the file that "@PATH" names, which may change between runs."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text()
    except OSError as error:
        cause = f"{text[1:]} cannot be read ({error.strerror})"
        raise ParameterError(FAULTS_VARIABLE, cause) from error


def _sm_percent(variables: Mapping[str, str], gpu: VirtualGPU) -> float:
    text = variables.get(SM_PERCENT_VARIABLE, "").strip() or "100"
    try:
        percent = float(text)
    except ValueError as error:
        raise ParameterError(SM_PERCENT_VARIABLE, f"{text!r} is not a number") from error
    gpu.effective_sms(percent)
    return percent


def _clock(variables: Mapping[str, str]) -> ClockCondition:
    text = variables.get(CLOCK_VARIABLE, "").strip() or "none"
    for clock in get_args(ClockCondition):
        if text == clock:
            return clock  # type: ignore[no-any-return]
    raise ParameterError(CLOCK_VARIABLE, f"{text!r} is not one of {', '.join(get_args(ClockCondition))}")


def _version(variables: Mapping[str, str], name: str, default: str) -> str:
    version = variables.get(name, "").strip() or default
    parts = version.split(".")
    if not 2 <= len(parts) <= 4 or not all(part.isdecimal() for part in parts):
        raise ParameterError(name, f"{version!r} is not a version such as {default}")
    return version
