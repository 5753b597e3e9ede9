"""A report as one self-contained page: nothing loaded from elsewhere, and no script unless asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay_report.figures import forms, gallery, interactive
from assay_report.figures.figure import Figure
from assay_report.figures.finishing import height_of, width_of
from assay_report.model.report import Report
from assay_report.model.verdicts import GpuVerdict
from assay_report.tables.sections import DEFINITIONS, further_sections, workload_sections
from assay_report.tables.table import condensed, filled
from assay_report.tables.verdicts import best_table, excluded_table, flags_table, suite_table
from assay_report.templating import environment
from assay_report.texts import mark, origin
from assay_report.verdicts.sentences import asked_sentences
from assay_report.verdicts.verdicts import details_of, first_sentence, verdicts_of

if TYPE_CHECKING:
    from markupsafe import Markup

# So many lines of workloads fit below the first screen; more are folded into stretches.
_WORKLOAD_LINES = 40
# Figures of more than this height do not fit half the width of a landscape sheet.
_TALL_PX = 820
# Beside another one its text would be smaller than 11 px in a window of 1400.
_WIDE_PX = 720


@dataclass(frozen=True)
class Plate:
    """A figure of the page; ``svg``, and ``narrow`` for phones, are markup already, in which every text
    is escaped.

    Without it the figure is not drawn, and the caption says how to see it. ``tall``: on paper it takes a page
    of its own. ``wide``: it has no other figure beside it.
    """

    name: str
    title: str
    caption: str
    svg: Markup | None
    narrow: Markup | None = None
    tall: bool = False
    wide: bool = False


def render_html(report: Report, *, with_scripts: bool = False) -> str:
    """The page of a report; every text in it is escaped.

    ``with_scripts``: each figure has a button that makes it interactive, and the page holds Vega (0.9 MB);
    otherwise the page has no script at all. Without the packages that draw, each figure says so in its place.
    Raises MissingExtraError without Jinja2.
    """
    verdicts = verdicts_of(report)
    figures = gallery.of_report(report)
    plates = _plates(figures, with_scripts=with_scripts)
    target = verdicts.target_error_percent
    template = environment("assay_report").get_template("report.html.j2")
    return template.render(
        title=f"Assay: {report.campaign.name}{mark(report)}",
        synthetic=report.campaign.synthetic,
        origin=origin(report),
        verdict=first_sentence(report),
        asked=asked_sentences(verdicts.asked, target),
        gpus=[
            (gpu, details_of(gpu.shortfalls, gpu.without_number, target), _falls_short(gpu, report))
            for gpu in verdicts.gpus
        ],
        suite=suite_table(verdicts),
        # With the simulator's columns the suite takes the whole width of the page.
        alone=bool(report.simulated),
        beside=filled(best_table(verdicts), flags_table(verdicts)),
        below=filled(excluded_table(verdicts)),
        condensed=condensed,
        figures=plates,
        workloads=list(workload_sections(report)),
        most=_WORKLOAD_LINES,
        further=list(further_sections(report)),
        definitions=DEFINITIONS,
        with_scripts=with_scripts,
        scripts=_scripts(figures) if with_scripts else "",
    )


def _falls_short(gpu: GpuVerdict, report: Report) -> bool:
    """Whether a GPU lacks a number, or a method to take, or any of a workload without one, is off there."""
    advised = {entry.workload for entry in report.recommendations}
    misses = any(each.recommended or each.workload not in advised for each in gpu.shortfalls)
    return misses or not gpu.projections or gpu.without_number > 0


def _plates(figures: Sequence[Figure], *, with_scripts: bool) -> dict[str | None, tuple[Plate, ...]]:
    """The figures by workload (None: the suite), of which a page draws a bounded number."""
    from markupsafe import Markup  # noqa: PLC0415 - comes with the server extra

    without = forms.missing()
    at_once = frozenset[str]() if without else gallery.drawn_at_once(figures)
    by_workload: dict[str | None, tuple[Plate, ...]] = {}
    for figure in figures:
        # The SVG is markup already: forms.svg escapes what it is given.
        at_hand = figure.name in at_once
        drawn = Markup(forms.svg(figure)) if at_hand else None
        narrow = Markup(forms.narrow_svg(figure, styled=False)) if at_hand else None
        if without:
            caption = f"{figure.title}: not drawn, because {without.cause}; {without.remedy}."
        else:
            caption = figure.caption if drawn else _how_to_see(figure, with_scripts=with_scripts)
        tall = drawn is not None and height_of(drawn) > _TALL_PX
        wide = drawn is not None and width_of(drawn) > _WIDE_PX
        plate = Plate(figure.name, figure.title, caption, drawn, narrow, tall, wide)
        by_workload[figure.workload] = (*by_workload.get(figure.workload, ()), plate)
    return by_workload


def _how_to_see(figure: Figure, *, with_scripts: bool) -> str:
    where = "the button draws it" if with_scripts else "assay report --format markdown writes it as a file"
    return f"{figure.title}: not drawn here, because the page would be too long; {where}."


def _scripts(figures: Sequence[Figure]) -> Markup:
    from markupsafe import Markup  # noqa: PLC0415 - comes with the server extra

    return Markup(interactive.specifications(figures) + interactive.starting_script(forms.bundle()))
