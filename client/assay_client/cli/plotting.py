"""The option ``--plot FILE``: a verb's result as a figure, in the form that the file's suffix chooses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay_client.files import require_folder_of, write_atomically

if TYPE_CHECKING:
    from assay_report.figures.figure import Figure

PlotOption = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        readable=False,
        metavar="FILE",
        help="Draw the result: .svg, .png, .pdf, .json (Vega-Lite) or .html, in an existing folder.",
    ),
]


def require_plot(path: Path | None) -> None:
    """Raise early what would only show after a long computation.

    That is ParameterError for a suffix that is no form of figures or a folder that is not there, and
    MissingExtraError with the install command where the packages that draw are not installed.
    """
    if path is None:
        return
    from assay_report.figures import forms  # noqa: PLC0415 - only who draws waits for it

    forms.form_of(path)
    require_folder_of(path)
    forms.converter()


def write_plot(path: Path | None, made: Callable[[], Figure]) -> None:
    """Write the figure that ``made`` gives; nothing without a path."""
    if path is None:
        return
    from assay_report.figures import forms  # noqa: PLC0415 - only who draws waits for it

    write_atomically(path, forms.form_of(path)(made()))
