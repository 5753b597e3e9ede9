"""The forms of a figure: SVG, PNG, vector PDF, JSON and an interactive page, all drawn offline by vl-convert.

vl-convert runs Vega-Lite in an engine inside this process: the first figure of a process takes half a second
more, and a figure some 50 ms (docs/figures.md). No form reads anything from the network: data is inside the
specification, data addresses are refused, and fonts are those of vl-convert and of the machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from assay_core.files.durable import write_atomically
from assay_report.figures import interactive
from assay_report.figures.figure import EXTRA, Figure
from assay_report.figures.finishing import at_most, finished, width_of
from assay_report.figures.widths import NARROW_PX, PAGE_PT, fitted, in_paper_text, narrowed, plot_width
from assay_sampling.errors import MissingExtraError, ParameterError

VEGA_LITE = "6.4"
PNG_SCALE = 2.0
# A page is drawn again and again while people watch a campaign.
_REMEMBERED = 128
# A narrow figure is drawn again while names and legends turn out wider than expected.
_FITTED_AGAIN = 2


def missing() -> MissingExtraError | None:
    """The error that names the install command, if the packages that draw are not installed."""
    try:
        converter()
    except MissingExtraError as error:
        return error
    return None


@lru_cache(maxsize=1)
def converter() -> ModuleType:
    """The module that draws; raises MissingExtraError naming the install command."""
    try:
        import vl_convert  # noqa: PLC0415 - comes with the extra `figures`
    except ImportError as error:
        raise MissingExtraError("figures", "vl_convert", EXTRA) from error
    module: ModuleType = vl_convert
    return module


def svg(figure: Figure, *, styled: bool = True) -> str:
    """The figure as SVG, which is a whole file and also a part of a page.

    ``styled``: with the style sheet for dark pages inside; a page that forbids styles inside has
    :data:`assay_report.figures.theme.STYLE` in its own sheet.
    """
    return _svg(figure.spec_bytes(), figure.title, figure.described, styled)


def narrow_svg(figure: Figure, *, styled: bool = True) -> str:
    """The figure as SVG for a phone, :data:`assay_report.figures.widths.NARROW_PX` wide at most.

    ``styled`` as for :func:`svg`, whose style sheet serves both on one page.
    """
    return _narrow_svg(figure.spec_bytes(), figure.title, figure.described, styled)


@lru_cache(maxsize=_REMEMBERED)
def _narrow_svg(spec: bytes, title: str, described: str, styled: bool) -> str:
    wide_spec = json.loads(spec)
    fitting = narrowed(wide_spec)
    drawn = _drawn(fitting)
    for _ in range(_FITTED_AGAIN):
        if width_of(drawn) <= NARROW_PX:
            break
        fitting = narrowed(wide_spec, plot_width(fitting) + NARROW_PX - width_of(drawn))
        drawn = _drawn(fitting)
    return finished(at_most(drawn, NARROW_PX), title, described, b"narrow" + spec, styled=styled)


@lru_cache(maxsize=_REMEMBERED)
def _svg(spec: bytes, title: str, described: str, styled: bool) -> str:
    return finished(_drawn(spec.decode()), title, described, spec, styled=styled)


def _drawn(spec: str | Mapping[str, Any]) -> str:
    made: str = converter().vegalite_to_svg(spec, vl_version=VEGA_LITE, allowed_base_urls=[])
    return made


def png(figure: Figure, *, scale: float = PNG_SCALE) -> bytes:
    """The figure as PNG, ``scale`` dots for each px."""
    spec = figure.spec_bytes().decode()
    made: bytes = converter().vegalite_to_png(spec, vl_version=VEGA_LITE, scale=scale, allowed_base_urls=[])
    return made


def pdf(figure: Figure, *, width_pt: float = PAGE_PT) -> bytes:
    """The figure as vector PDF for a paper: at most ``width_pt`` wide, in the paper's size of text, without
    its title, because papers have captions. What cannot be made so narrow is scaled down."""
    drawn = _drawn(in_paper_text(figure.spec))
    if width_of(drawn) > width_pt:
        drawn = _drawn(fitted(figure.spec, width_pt, width_of(drawn)))
    made: bytes = converter().svg_to_pdf(at_most(drawn, width_pt))
    return made


def html(figure: Figure) -> str:
    """The figure as a page of one file, whose interactive form starts on demand."""
    return interactive.page(figure, svg(figure), "" if figure.empty else bundle())


@lru_cache(maxsize=1)
def bundle() -> str:
    """Vega, Vega-Lite and their page part as one script, 0.9 MB; it takes seconds to make."""
    made: str = converter().javascript_bundle(vl_version=VEGA_LITE)
    # A script element ends at the first closing tag, wherever it is.
    return made.replace("</script", "<\\/script")


FORMS: Mapping[str, Callable[[Figure], bytes]] = {
    ".svg": lambda figure: svg(figure).encode(),
    ".png": png,
    ".pdf": pdf,
    ".json": Figure.spec_bytes,
    ".html": lambda figure: html(figure).encode(),
}
"""How a figure is written, by the suffix of the file."""


def form_of(path: Path) -> Callable[[Figure], bytes]:
    """The form that a file's suffix chooses; raises ParameterError for another one."""
    try:
        return FORMS[path.suffix.lower()]
    except KeyError:
        raise ParameterError(
            str(path), f"a figure is not written as {path.suffix or 'a file without a suffix'}",
            f"name a file that ends in one of {', '.join(FORMS)}",
        ) from None  # fmt: skip


def write(figure: Figure, path: Path) -> None:
    """Write a figure in the form that the file's suffix chooses.

    Raises ParameterError for another suffix, MissingExtraError without vl-convert, OSError if the disk
    refuses.
    """
    write_atomically(path, form_of(path)(figure), private=False)
