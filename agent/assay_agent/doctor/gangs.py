"""The doctor's look at runs over several GPUs: how many GPUs of one kind, and whether they can be recorded.

Source: docs/scheduling.md, "Gangs".
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from assay_agent.doctor.check import Check
from assay_core.records.machine import Inventory

_MIG_PREFIX = "MIG-"


def gang_checks(inventory: Inventory) -> Iterator[Check]:
    """One finding for each kind of GPU that this box has more than once; never "missing"."""
    kinds: dict[str, int] = {}
    for device in inventory.devices:
        if not (device.problem or device.left_out or device.uuid.startswith(_MIG_PREFIX)):
            kinds[device.name] = kinds.get(device.name, 0) + 1
    for name, count in kinds.items():
        if count == 1:
            continue
        if shutil.which("nsys") is None:
            what = f"{count} GPUs, and nsys, which records the processes on all of them, is not in the PATH"
            yield Check(f"gangs of {name}", "note", what, "install NVIDIA Nsight Systems")
        else:
            what = f"up to {count} GPUs in a run (light and bare runs; no counters of several GPUs)"
            yield Check(f"gangs of {name}", "ok", what)
