"""The other GPUs of a run over several: their conditions, and the watch over each, while it is measured.

The slot that leads measures: its profiler records the processes of all ranks. The other GPUs are locked,
brought under the same condition and watched in the same way, so that a fault of any of them shows.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay_agent.conditions import Conditions, Site
from assay_agent.conditions.journal import Journal
from assay_agent.conditions.together import Together
from assay_agent.execution.environment import MeasuredGPU, Workspace, gang_of
from assay_agent.execution.errors import ProfilerError
from assay_agent.telemetry.watch import GpuWatch
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.work import Work
from assay_sampling.running.failures import FailureClass
from assay_sampling.running.identity import Device


class OtherGpus(Together):
    """The GPUs of a gang except the one whose slot leads; empty for a run on one GPU.

    Entering raises ProfilerError if a condition cannot be made; then none stays in force.
    """

    def __init__(
        self,
        gpu: MeasuredGPU,
        work: Work,
        space: Workspace,
        *,
        environment: Mapping[str, str],
        state: Path,
        cancelled: threading.Event,
        note: Callable[[str], None],
    ) -> None:
        self._conditions: list[Conditions] = []
        self._watches: list[GpuWatch] = []
        for other in gang_of(gpu, work):
            if other is gpu:
                continue
            private, lock = space.others[other.device.uuid]
            site = Site(
                gpu=other,
                work=work,
                base=private,
                lock=lock,
                environment=environment,
                journal=Journal(state, other.device.uuid, private / "lock"),
                cancelled=cancelled,
                note=note,
            )
            self._conditions.append(Conditions(site))
            self._watches.append(GpuWatch(other, work, private, cancelled))

    def _each(self) -> Iterator[AbstractContextManager[Any]]:
        yield from self._conditions
        yield from self._watches

    @property
    def flags(self) -> tuple[ValidityFlag, ...]:
        """The flags of their conditions and sensors, each with the GPU in its detail."""
        return tuple(
            replace(flag, detail=f"GPU {watch.summary.gpu}: {flag.detail}")
            for conditions, watch in zip(self._conditions, self._watches, strict=True)
            for flag in (*conditions.flags, *watch.flags)
        )

    @property
    def telemetry(self) -> list[dict[str, Any]]:
        """The summary of each GPU's sensors."""
        return [watch.to_dict() for watch in self._watches]

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """Around the command that measures; see :meth:`GpuWatch.measuring`."""
        with contextlib.ExitStack() as stack:
            for watch in self._watches:
                stack.enter_context(watch.measuring())
            yield

    def begin_again(self) -> None:
        """Forget what their sensors said of the run that has ended."""
        for watch in self._watches:
            watch.begin_again()

    def before_ending(self) -> None:
        """The processes of the run are about to be ended by signals."""
        for conditions in self._conditions:
            conditions.before_ending()

    def check(self) -> None:
        """Raises ProfilerError if a condition was not in force during the run that has ended."""
        for conditions in self._conditions:
            conditions.check()


def gang_devices(gpu: MeasuredGPU, work: Work) -> tuple[Device, ...]:
    """The devices of a gang with their ordinals for CUDA; empty for a run on one GPU."""
    if not work.gang:
        return ()
    return tuple(replace(each.device, index=number) for number, each in enumerate(gang_of(gpu, work)))


def require_whole_gang(work: Work, ordinals: Collection[int]) -> None:
    """Raises ProfilerError unless kernels ran on every GPU of a gang and on no other.

    A launcher that shows each rank one GPU alone makes them all ordinal 0: nobody could tell them apart.
    """
    if not work.gang or set(ordinals) == set(range(len(work.gang) + 1)):
        return
    used_gpus = ", ".join(str(number) for number in sorted(ordinals)) or "none"
    raise ProfilerError(
        FailureClass.NOTHING_PROFILED,
        str(work.key),
        f"the run has the GPUs 0 to {len(work.gang)}, and kernels ran on {used_gpus}",
        "let every rank see all GPUs (CUDA_VISIBLE_DEVICES as the agent sets it) and use its own by "
        "LOCAL_RANK, or ask for as many GPUs as the command uses",
    )
