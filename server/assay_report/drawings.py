"""The figures of each part of a page, as SVG with title and caption."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from assay_report.model.report import Report
from assay_report.model.scores import Row
from assay_report.pictures.gallery import Picture, compared_pictures, summary_pictures, workload_pictures


@dataclass(frozen=True)
class Drawing:
    """A figure of a page: ``name`` of its file, ``title``, ``caption`` below it, and markup that is safe."""

    name: str
    title: str
    caption: str
    svg: str


def suite_drawings(report: Report) -> Iterator[Drawing]:
    """Figures of the whole campaign."""
    yield from _of(summary_pictures(report))
    yield from _of(compared_pictures(report))


def workload_drawings(report: Report, workload: str, rows: Sequence[Row]) -> Iterator[Drawing]:
    """Figures of one workload."""
    yield from _of(workload_pictures(report, workload, rows))


def _of(pictures: Iterable[Picture]) -> Iterator[Drawing]:
    return (Drawing(each.name, each.title, "", each.svg) for each in pictures)
