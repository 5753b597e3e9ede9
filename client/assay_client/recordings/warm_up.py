"""The output of ``assay reuse --warm-up``: a list for the simulator, and the traces that the list names.

Accel-Sim looks for traces in the folder of the list, so the memory-only ones are written there, along with
links to the whole ones. The folder of the traces and existing files stay unchanged without ``force``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay_client.files import link_to, write_atomically
from assay_sampling.errors import ParameterError, StorageError
from assay_sampling.simulators.accel_sim.kernels_list import KernelsList
from assay_sampling.simulators.accel_sim.warm_up import (
    memory_only_path,
    memory_only_trace,
    warm_up_list,
    warm_up_order,
)


@dataclass(frozen=True)
class WarmUp:
    """A list, and the traces that it names: ``replays`` are made of whole traces, ``links`` lead to them.

    Both are by path, with the path of the whole trace.
    """

    lines: Sequence[str]
    replays: dict[Path, Path] = field(default_factory=dict)
    links: dict[Path, Path] = field(default_factory=dict)

    def to_dict(self, target: Path | None) -> dict[str, Any]:
        return {
            "list": None if target is None else str(target),
            "lines": list(self.lines),
            "written_traces": [] if target is None else [str(path) for path in self.replays],
            "linked_traces": [] if target is None else [str(path) for path in self.links],
        }


def plan_warm_up(
    kernels: KernelsList, selected: Sequence[int], preceding: int, target: Path | None
) -> WarmUp:
    """The contents of the list, and the traces that it needs next to ``target``; writes nothing.

    ``selected`` are 1-based places in ``kernels``. Raises ParameterError like
    :func:`assay_sampling.simulators.accel_sim.warm_up.warm_up_order`.
    """
    rows = [launch - 1 for launch in selected]
    plan = WarmUp(warm_up_list(kernels, rows, preceding))
    folder = kernels.path.parent if target is None else target.parent
    for launch, memory_only in warm_up_order(len(kernels.traces), rows, preceding):
        trace = kernels.traces[launch]
        if memory_only:
            plan.replays[folder / memory_only_path(trace).name] = trace
        elif folder.resolve() != trace.parent.resolve():
            plan.links[folder / trace.name] = trace.resolve()
    return plan


def write_warm_up(
    plan: WarmUp, kernels: KernelsList, target: Path, *, force: bool, say: Callable[[str], None]
) -> None:
    """Write the list and its traces, or nothing if one of them must not be written.

    Without ``force``, raises ParameterError for a list in the folder of the traces and StorageError for an
    existing file; with it, StorageError only if the disk refuses.
    """
    _check(plan, kernels, target, force)
    for replay, trace in plan.replays.items():
        say(f"writing {replay}")
        write_atomically(replay, b"".join(memory_only_trace(trace)))
    for link, trace in plan.links.items():
        link_to(link, trace)
    write_atomically(target, "".join(f"{line}\n" for line in plan.lines))


def _check(plan: WarmUp, kernels: KernelsList, target: Path, force: bool) -> None:
    if target.resolve() == kernels.path.resolve():
        raise ParameterError(
            "--output", f"{target} is the list of the traces itself", "name another file for the new list"
        )
    if force:
        return
    folders = {kernels.path.resolve().parent, *(trace.resolve().parent for trace in kernels.traces)}
    if target.resolve().parent in folders:
        raise ParameterError(
            "--output",
            f"{target} is in the folder of the traces",
            "name a file in another folder, to which the traces are linked; --force writes it there",
        )
    for path in (target, *plan.replays, *plan.links):
        if path.is_symlink() or path.exists():
            raise StorageError(
                str(path), "it exists already", "name a list in another folder, or replace it with --force"
            )
