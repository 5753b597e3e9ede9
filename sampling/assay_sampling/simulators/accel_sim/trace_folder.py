"""A folder of traces: its list, and which launch of the traced process each trace is.

Accel-Sim's reader takes traces that end in ``.traceg`` or ``.xz``, that of Accel-Sim 2.0 also ``.tracez``;
newer tracers add the CUDA context to the names. Source: docs/simulator-files.md, "Traces".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from assay_sampling.errors import InputError, RefusedError
from assay_sampling.files.reading import is_folder, reading
from assay_sampling.simulators.accel_sim.kernels_list import KernelsList, read_kernels_list
from assay_sampling.simulators.accel_sim.trace_text import TraceHeader, read_header

_NUMBERED = re.compile(r"kernel-(\d{1,15})(?:-ctx_0x[0-9a-fA-F]+)?\.trace(?:g(?:\.xz)?|z)")
IDS_NAME = "launch-ids.txt"
_IDS = re.compile(r"(\d{1,15}) (\d{1,15})")
_GROUPED = "group the traces with post-traces-processing, and name their folder"
_EXPORT_AGAIN = "write the folder again with: assay export SELECTION --to accel-sim"


@dataclass(frozen=True)
class TraceFolder:
    """Traces by the 1-based id of their launch, in the order of the list; ``traced_ids`` are the tracer's own
    by those of the launches, empty where these are the same."""

    kernels: KernelsList
    by_id: Mapping[int, Path]
    traced_ids: Mapping[int, int] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The folder."""
        return self.kernels.path.parent

    def traced_id(self, kernel_id: int) -> int:
        """The 1-based id that the tracer gave a launch."""
        return self.traced_ids.get(kernel_id, kernel_id)

    def header(self, kernel_id: int) -> TraceHeader:
        """The header of a launch's trace; raises InputError unless it is that of this launch."""
        path, traced_id = self.by_id[kernel_id], self.traced_id(kernel_id)
        if not path.exists():
            raise InputError(
                self.kernels.path,
                f"there is no {path.name}, which it lists",
                f"copy the trace of launch {traced_id} next to the list, or trace the launch again",
                line=self.kernels.line_of(path),
            )
        header = read_header(path)
        if header.kernel_id != traced_id:
            raise InputError(
                path,
                f"its header says that it is launch {header.kernel_id}, and its name says {traced_id}",
                "trace the launches again, or give the file its own name",
                field="kernel id",
            )
        return header


def open_trace_folder(path: Path) -> TraceFolder:
    """The traces of a folder, or of a list in it.

    Raises InputError where there is no list, for a list that cannot be read or lists a launch twice, for
    traces in a form that Accel-Sim does not read, and as :func:`read_launch_ids`; RefusedError for several
    lists.
    """
    listed = _list_in(path) if is_folder(path) else path
    kernels = read_kernels_list(listed)
    by_id: dict[int, Path] = {}
    for trace in kernels.traces:
        name = _NUMBERED.fullmatch(trace.name)
        if name is None:
            raise _unknown_form(listed, trace)
        kernel_id = int(name[1])
        if kernel_id in by_id:
            raise InputError(
                listed,
                f"it lists launch {kernel_id} twice: {by_id[kernel_id].name} and {trace.name}",
                "list each launch once; of several CUDA contexts give each a list of its own",
            )
        by_id[kernel_id] = trace
    launch_ids = read_launch_ids(listed)
    if not launch_ids:
        return TraceFolder(kernels, by_id)
    unknown = next((trace for traced_id, trace in by_id.items() if traced_id not in launch_ids), None)
    if unknown is not None:
        raise InputError(
            listed.with_name(IDS_NAME), f"it does not say which launch {unknown.name} is", _EXPORT_AGAIN
        )
    return TraceFolder(
        kernels,
        {launch_ids[traced_id]: trace for traced_id, trace in by_id.items()},
        {launch_ids[traced_id]: traced_id for traced_id in by_id},
    )


def launch_ids_text(folder: TraceFolder, kernel_ids: Iterable[int]) -> Iterator[str]:
    """What :func:`read_launch_ids` reads back of these launches."""
    yield "# launch, and the id that its trace has; both from 1\n"
    for kernel_id in sorted(kernel_ids):
        yield f"{kernel_id} {folder.traced_id(kernel_id)}\n"


def read_launch_ids(listed: Path) -> Mapping[int, int]:
    """The launches by the ids that their traces have, where the folder of a list says that they differ.

    Raises InputError for a line that is not as :func:`launch_ids_text` writes it.
    """
    path = listed.with_name(IDS_NAME)
    if not path.exists():
        return {}
    with reading(path):
        text = path.read_text("utf-8", "replace")
    launch_ids: dict[int, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            continue
        ids = _IDS.fullmatch(line)
        if ids is None or int(ids[2]) in launch_ids:
            cause = "it is not a launch and the id of its trace, which no other launch has"
            raise InputError(path, cause, _EXPORT_AGAIN, line=number)
        launch_ids[int(ids[2])] = int(ids[1])
    if len(set(launch_ids.values())) < len(launch_ids):
        raise InputError(path, "it names a launch twice", _EXPORT_AGAIN)
    return launch_ids


def _list_in(folder: Path) -> Path:
    lists = sorted(folder.glob("kernelslist*.g"))
    if len(lists) > 1:
        names = ", ".join(each.name for each in lists[:4])
        raise RefusedError(
            str(folder), f"it has several lists of launches: {names}", "name one of them: --traces FILE"
        )
    if lists:
        return lists[0]
    if (folder / "kernel_config.txt").exists():
        raise InputError(folder, "its traces are MacSim's", "hand over with: --to macsim")
    if any(folder.glob("kernelslist*")):
        raise InputError(folder, "its traces are as the tracer wrote them, not grouped", _GROUPED)
    raise InputError(folder, "it has no kernelslist.g", _GROUPED)


def _unknown_form(listed: Path, trace: Path) -> InputError:
    if trace.name.startswith("kernel-mem-"):
        return InputError(
            listed,
            f"it is a list that warms up: {trace.name} has only memory instructions",
            "name the list that the tracer's post-processing wrote",
        )
    if trace.suffix in (".gz", ".zst"):
        return InputError(
            trace,
            "Accel-Sim does not read that compression: it takes .traceg and .traceg.xz",
            "unpack the traces or compress them by xz, and correct the names in the list",
        )
    return InputError(listed, f"{trace.name[:80]!r} is not called kernel-N.traceg", _GROUPED)
