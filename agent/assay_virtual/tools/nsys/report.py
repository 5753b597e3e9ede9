"""The report of the stand-in for Nsight Systems: launches, ranges, the GPU, the command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay_virtual.tools.columns import Columns
from assay_virtual.tools.container import container_bytes, read_container

NSYS_MAGIC = b"ASSAYVIRTUALNSYS"


@dataclass(frozen=True)
class Capture:
    """``launches`` has one row per launch (columns process, call, call_ns, start_ns, duration_ns, kernel, x,
    y, z, stream, graph_launch, graph_node, thread, kept), by process; ``document`` has everything else."""

    document: dict[str, Any]
    launches: Columns

    def to_bytes(self) -> bytes:
        return container_bytes(NSYS_MAGIC, self.document, self.launches)

    @classmethod
    def read(cls, path: Path) -> Capture:
        """Raises OSError or ContainerError."""
        return cls(*read_container(path, NSYS_MAGIC))
