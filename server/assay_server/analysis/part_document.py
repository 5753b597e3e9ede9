"""The analysis of one workload as bytes: a task's answer, which may outlive the server that asked for it."""

from __future__ import annotations

import json
import zlib
from typing import Annotated

from pydantic import ValidationError

from assay_report.model.drawn import Drawn
from assay_report.model.report import Comparisons
from assay_report.model.scores import Row
from assay_sampling.documents.base import Part, says
from assay_sampling.documents.selection import SelectionInReport
from assay_server.analysis.unusable_part import UnusablePartError
from assay_server.analysis.workload import WorkloadAnalysis

_LEVEL = 1  # a fifth of the bytes; higher levels take longer and save little


class _WorkloadDocument(Part):
    rows: Annotated[list[Row], says("rows of the report, in order")]
    selections: Annotated[dict[str, SelectionInReport], says("by key")]
    drawn: Annotated[dict[str, Drawn], says("data of figures, by the selection's key")]
    compared: Annotated[Comparisons, says("comparisons of its runs")]


def packed(part: WorkloadAnalysis) -> bytes:
    """The analysis as compressed JSON. Numbers keep their last bit, so a report joined from what
    :func:`unpacked` gives has the same bytes."""
    document = _WorkloadDocument.model_construct(
        rows=part.rows, selections=part.selections, drawn=part.drawn, compared=part.compared
    )
    return zlib.compress(json.dumps(document.model_dump(mode="json"), allow_nan=False).encode(), _LEVEL)


def unpacked(content: bytes) -> WorkloadAnalysis:
    """The analysis that :func:`packed` made bytes of in this release; raises UnusablePartError."""
    try:
        document = _WorkloadDocument.model_validate_json(zlib.decompress(content))
    except (zlib.error, ValidationError) as error:
        raise UnusablePartError(type(error).__name__) from error
    return WorkloadAnalysis(document.rows, document.selections, document.drawn, document.compared)
