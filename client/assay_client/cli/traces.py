"""The traces that verbs take: one list of kernels, or traces in order of launch."""

from __future__ import annotations

from pathlib import Path

from assay_sampling.errors import ParameterError
from assay_sampling.files.reading import is_folder
from assay_sampling.simulators.accel_sim.kernels_list import KernelsList, read_kernels_list
from assay_sampling.simulators.accel_sim.launch_traces import LaunchTraces
from assay_sampling.simulators.accel_sim.trace_folder import open_trace_folder, read_launch_ids
from assay_sampling.simulators.accel_sim.trace_text import PACKED_SUFFIX


def traces_of(paths: list[Path]) -> tuple[list[Path], KernelsList | None]:
    """The traces, and the list where one was given; raises ParameterError if both kinds are mixed."""
    lists = [path for path in paths if not {".traceg", PACKED_SUFFIX} & set(path.suffixes)]
    if not lists:
        return paths, None
    if len(paths) > 1:
        raise ParameterError(str(lists[0]), "it is not a trace", "give one list, or traces only")
    kernels = read_kernels_list(paths[0])
    return list(kernels.traces), kernels


def simulated_traces(paths: list[Path]) -> LaunchTraces | None:
    """The traces that were simulated: a folder of them, their list, or traces; None if none are given.

    Raises InputError for files that are not traces, ParameterError for lists and traces mixed.
    """
    if not paths:
        return None
    if len(paths) == 1 and is_folder(paths[0]):
        paths = [open_trace_folder(paths[0]).kernels.path]
    traces, kernels = traces_of(paths)
    return LaunchTraces.of(traces, read_launch_ids(kernels.path) if kernels else None)
