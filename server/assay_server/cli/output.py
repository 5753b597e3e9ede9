"""What verbs share: documents as JSON or as text, progress, and the extra of the installation they need."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import typer

from assay_sampling.errors import MissingExtraError

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def show(document: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print one JSON document, or its text for people."""
    typer.echo(json.dumps(document) if as_json else text)


@contextlib.contextmanager
def progress_shown() -> Iterator[Callable[..., None]]:
    """Show people at a terminal how far a verb is, until the block ends.

    Yields a function of what is counted, how many are done, and of how many (None: nobody knows).
    """
    from rich.console import Console  # noqa: PLC0415 - serving needs none of this
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    columns = BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False)
    drawn, hidden = Console(stderr=True), not sys.stderr.isatty()
    with Progress(*columns, console=drawn, transient=True, disable=hidden) as progress:
        task = progress.add_task("", total=None)

        def done(what: str, number: int, of: int | None = None) -> None:
            progress.update(task, description=what, completed=number, total=of)

        yield done


@contextlib.contextmanager
def server_extra() -> Iterator[None]:
    """Turn a missing module of others in the block into MissingExtraError."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("assay_"):
            raise
        raise MissingExtraError("assay-server", error.name or "?", "server") from None
