"""A report document as one self-contained page: no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assay_sampling.errors import MissingExtraError
from assay_server.report import tables
from assay_server.report.compared import compared_tables
from assay_server.report.gallery import (
    Picture,
    compared_pictures,
    mark,
    summary_pictures,
    workload_pictures,
)
from assay_server.report.provenance import provenance_table
from assay_server.report.sections import by_workload, workload_tables

try:
    from jinja2 import Environment, PackageLoader, StrictUndefined, Template
    from markupsafe import Markup
except ImportError as missing:
    raise MissingExtraError("HTML report", "jinja2", "server") from missing

Report = Mapping[str, Any]
Row = Mapping[str, Any]


def render_html(report: Report) -> str:
    """The page of a report document; every text in it is escaped."""
    campaign = report["campaign"]
    rows: Sequence[Row] = report["rows"]
    return _template().render(
        title=f"Assay: {campaign['name']}{mark(report)}",
        campaign=campaign,
        synthetic=campaign["synthetic"],
        versions=report["versions"],
        summary=tables.summary_table(report),
        pictures=_markup(summary_pictures(report)),
        compared=list(compared_tables(report)),
        compared_pictures=_markup(compared_pictures(report)),
        workloads=[
            {
                "name": name,
                "pictures": _markup(workload_pictures(report, name, part)),
                "tables": list(workload_tables(report, part)),
            }
            for name, part in by_workload(rows).items()
        ],
        provenance=provenance_table(report),
        runs=tables.runs_table(report),
        failed=tables.failed_runs_table(report),
        definitions=tables.DEFINITIONS,
    )


def _markup(pictures: Iterable[Picture]) -> list[Markup]:
    # The pictures are markup already: svg.py escapes what it is given.
    return [Markup(each.svg) for each in pictures]


def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("assay_server.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2")
