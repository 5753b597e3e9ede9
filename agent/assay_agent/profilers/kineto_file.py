"""The trace that a workload writes itself: the variable that names it, and which names are valid."""

from __future__ import annotations

from pathlib import PurePosixPath

# The variable that tells a workload which trace to write.
KINETO_VARIABLE = "ASSAY_KINETO_FILE"


def kineto_fault(name: str) -> str:
    """Why a name cannot be that of a trace in the working folder, "" if it can."""
    path = PurePosixPath(name)
    if not name or "\0" in name:
        return "it names no file"
    if path.is_absolute() or ".." in path.parts:
        return "it leads out of the folder in which the command runs"
    if set(name) & set("*?["):
        return "it is a pattern, and traces of several processes are not merged"
    return ""
