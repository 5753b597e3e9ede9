"""A report of the stand-in for Nsight Compute: one row per launch, one column per metric, and units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assay_virtual.tools.columns import Columns

NCU_MAGIC = b"ASSAY-VIRTUALNCU"
PRODUCT = "assay virtual"
IDENTITY = ("pid", "name", "context", "stream", "block", "grid", "device", "cc", "nvtx", "second")


@dataclass(frozen=True)
class Results:
    """A report: ``columns`` are those of IDENTITY and one for each metric; ``units`` of the metrics."""

    columns: Columns
    units: dict[str, str]
    process_name: str
    tool_version: str
    nvtx: bool

    def document(self) -> dict[str, Any]:
        return {
            "product": PRODUCT,
            "synthetic": True,
            "units": self.units,
            "process_name": self.process_name,
            "tool_version": self.tool_version,
            "nvtx": self.nvtx,
        }

    @classmethod
    def of(cls, document: dict[str, Any], columns: Columns) -> Results:
        """The results in a report."""
        return cls(
            columns, document["units"], document["process_name"], document["tool_version"], document["nvtx"]
        )
