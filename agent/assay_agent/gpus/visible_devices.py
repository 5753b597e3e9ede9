"""Which GPUs the agent's environment leaves to it: CUDA_VISIBLE_DEVICES, as a scheduler sets it.

An entry is an ordinal, or (the beginning of) a UUID; entries after an invalid one do not count. CUDA
numbers GPUs by speed unless CUDA_DEVICE_ORDER is PCI_BUS_ID, and NVML by the bus: where the two may differ,
ordinals are ambiguous and none is taken. Source: CUDA C++ Programming Guide, "CUDA environment variables";
docs/nvidia-tools.md, "NVML".
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Protocol

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"


class Numbered(Protocol):
    """A GPU in the order of the bus."""

    @property
    def index(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def uuid(self) -> str: ...


def hidden(devices: Sequence[Numbered], environment: Mapping[str, str] | None = None) -> list[str]:
    """For each GPU why it is not the agent's, "" if it is; ``environment``: this process's own."""
    variables = os.environ if environment is None else environment
    text = variables.get(VISIBLE)
    if text is None:
        return [""] * len(devices)
    entries = [entry.strip() for entry in text.split(",")]
    if _uncertain(entries, devices, variables.get(ORDER, "")):
        reason = (
            f"{VISIBLE}={text} of the agent numbers different GPUs in CUDA's order, which is not that of the "
            f"bus; name UUIDs there, or set {ORDER}=PCI_BUS_ID as well"
        )
        return [reason] * len(devices)
    indices = named(entries, devices)
    reason = f"{VISIBLE}={text} of the agent does not name it; start the agent with one that does"
    return ["" if device.index in indices else reason for device in devices]


def _uncertain(entries: Sequence[str], devices: Sequence[Numbered], order: str) -> bool:
    """Whether ordinals choose among several kinds of GPU and their order is not set."""
    ordinals = {entry for entry in entries if entry.isdecimal()}
    alike = len({device.name for device in devices}) <= 1
    return bool(ordinals) and not alike and order != "PCI_BUS_ID" and len(ordinals) < len(devices)


def named(entries: Sequence[str], devices: Sequence[Numbered]) -> set[int]:
    """Indices of the GPUs that the entries name, up to the first invalid entry."""
    indices: set[int] = set()
    for entry in entries:
        if entry.isdecimal():
            matches = [device for device in devices if device.index == int(entry)]
        else:
            matches = [device for device in devices if entry and device.uuid.startswith(entry)]
        if len(matches) != 1:
            break
        indices.add(matches[0].index)
    return indices
