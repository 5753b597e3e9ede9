"""Analyses and their rows."""

from __future__ import annotations

from typing import Any

from assay_server.store.model import Analysis, AnalysisState
from assay_server.store.values.fields import Row, documents_of, failure_of, shallow


def analysis_of(row: Row) -> Analysis:
    """The analysis of a row."""
    return Analysis(**{**row, "state": AnalysisState(row["state"]), "failure": failure_of(row["failure"])})


def analysis_values(analysis: Analysis) -> dict[str, Any]:
    """The row of an analysis."""
    return {**shallow(analysis), "state": str(analysis.state), **documents_of(analysis, "failure")}
