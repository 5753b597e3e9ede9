"""A report document as one self-contained page: no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assay_sampling.errors import MissingExtraError
from assay_server.report import tables
from assay_server.report.compared import compared_tables
from assay_server.report.pictures import (
    difference_bars,
    error_against_speedup,
    error_bars,
    predicted_against_true,
)
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
        title=f"Assay: {campaign['name']}{_mark(campaign)}",
        campaign=campaign,
        synthetic=campaign["synthetic"],
        versions=report["versions"],
        summary=tables.summary_table(report),
        # The pictures are markup already: svg.py escapes what it is given.
        scatter=Markup(error_against_speedup(f"Error against speedup{_mark(campaign)}", rows)),
        compared=list(compared_tables(report)),
        compared_pictures=[Markup(drawn) for drawn in _compared_pictures(report)],
        workloads=[
            {
                "name": name,
                "bars": Markup(error_bars(f"Error by GPU and method: {name}{_mark(campaign)}", part)),
                "tables": list(workload_tables(report, part)),
            }
            for name, part in by_workload(rows).items()
        ],
        runs=tables.runs_table(report),
        failed=tables.failed_runs_table(report),
        definitions=tables.DEFINITIONS,
    )


def _compared_pictures(report: Report) -> Iterator[str]:
    mark = _mark(report["campaign"])
    if report.get("sm_share"):
        yield predicted_against_true(f"Speedup of all SMs over a share{mark}", report["sm_share"])
    if report.get("cold_start"):
        yield difference_bars(f"Caches flushed between launches{mark}", report["cold_start"])


def _mark(campaign: Mapping[str, Any]) -> str:
    return " (synthetic)" if campaign["synthetic"] else ""


def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("assay_server.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2")
