"""A report as one self-contained page: no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from assay_report.model.report import Report
from assay_report.pictures.gallery import (
    Picture,
    compared_pictures,
    mark,
    summary_pictures,
    workload_pictures,
)
from assay_report.tables.compared import compared_tables
from assay_report.tables.runs import failed_runs_table, provenance_table, runs_table
from assay_report.tables.scores import summary_table
from assay_report.tables.sections import DEFINITIONS, by_workload, workload_tables
from assay_sampling.errors import MissingExtraError

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup


def render_html(report: Report) -> str:
    """The page of a report; every text in it is escaped. Raises MissingExtraError without Jinja2."""
    campaign = report.campaign
    return _template().render(
        title=f"Assay: {campaign.name}{mark(report)}",
        campaign=campaign,
        synthetic=campaign.synthetic,
        versions=report.versions,
        summary=summary_table(report),
        pictures=_markup(summary_pictures(report)),
        compared=list(compared_tables(report)),
        compared_pictures=_markup(compared_pictures(report)),
        workloads=[
            {
                "name": name,
                "pictures": _markup(workload_pictures(report, name, part)),
                "tables": list(workload_tables(report, part)),
            }
            for name, part in by_workload(report.rows).items()
        ],
        provenance=provenance_table(report),
        runs=runs_table(report.runs),
        failed=failed_runs_table(report.failed_runs),
        definitions=DEFINITIONS,
    )


def _markup(pictures: Iterable[Picture]) -> list[Markup]:
    from markupsafe import Markup  # noqa: PLC0415 - comes with the server extra

    # The pictures are markup already: svg.py escapes what it is given.
    return [Markup(each.svg) for each in pictures]


def _template() -> Template:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415
    except ImportError as missing:
        raise MissingExtraError("HTML report", "jinja2", "server") from missing
    environment = Environment(
        loader=PackageLoader("assay_report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2")
