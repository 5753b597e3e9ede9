"""Which GPUs an agent was told to offer: by name (``--gpus``), or those that its Slurm job was given.

What nobody chose is not left out here; CUDA_VISIBLE_DEVICES of the agent counts beside it
(:mod:`assay_agent.gpus.visible_devices`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay_agent.gpus.visible_devices import Numbered, named
from assay_agent.jobs.slurm import SlurmJob
from assay_core.records.machine import Inventory
from assay_sampling.errors import NotReadyError, ParameterError

OF_THE_JOB = "slurm"


@dataclass(frozen=True)
class ChosenGpus:
    """A choice: ``entries`` are ordinals in the order of the bus, or (beginnings of) UUIDs.

    ``by`` says in messages who chose. ``of_the_node``: ordinals count GPUs that may be hidden from this
    process.
    """

    entries: tuple[str, ...]
    by: str
    of_the_node: bool = False

    def reasons(self, devices: Sequence[Numbered]) -> list[str]:
        """For each GPU of one box, or of one kind of virtual GPU, why it is left out; "" if it was chosen."""
        if self.of_the_node and len(devices) == len(self.entries):
            return [""] * len(devices)  # the job's devices are all that its control group shows
        indices = set().union(*(named([entry], devices) for entry in self.entries))
        why = f"{self.by} does not have it"
        return ["" if device.index in indices else why for device in devices]

    def applied(self, inventory: Inventory) -> Inventory:
        """The inventory; GPUs that nobody chose are left out of the agent's runs."""
        devices = inventory.devices
        judged = zip(devices, self.reasons(devices), strict=True)
        with_reasons = [dataclasses.replace(each, left_out=each.left_out or why) for each, why in judged]
        return dataclasses.replace(inventory, devices=tuple(with_reasons))

    def require_one(self, offered: Sequence[Numbered]) -> None:
        """Raise NotReadyError if none of the GPUs that were chosen is offered."""
        if not offered:
            raise NotReadyError(
                self.by,
                f"none of its GPUs ({', '.join(self.entries)}) can be offered here",
                "'assay-agent inventory' says what this box has, and why a GPU takes no runs",
            )


def chosen_gpus(setting: Sequence[str], environment: Mapping[str, str] | None = None) -> ChosenGpus | None:
    """The choice that a setting makes; None: all GPUs.

    Raises ParameterError for a setting that cannot be, NotReadyError if the job of this process has no GPU.
    """
    entries = tuple(entry.strip() for text in setting for entry in text.split(","))
    if not entries:
        return None
    if OF_THE_JOB in entries:
        if len(entries) > 1:
            raise ParameterError(
                "--gpus", f"{OF_THE_JOB!r} stands alone", "name GPUs, or the job's, not both"
            )
        job = SlurmJob.of(environment)
        job_gpus = job.gpus(environment)
        return ChosenGpus(job_gpus.entries, f"Slurm job {job.shown}", job_gpus.of_the_node)
    if not all(entries):
        raise ParameterError("--gpus", "an entry is empty", "give ordinals or UUIDs, as in --gpus 0,2")
    return ChosenGpus(entries, f"--gpus {','.join(entries)}")
