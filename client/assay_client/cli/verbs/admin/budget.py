"""``assay admin budget [PERSON]``: how many GPU hours people may use, and have used."""

from __future__ import annotations

from typing import Annotated

import typer

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.people import render_budgets
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client
from assay_sampling.errors import ParameterError

app = verb_app()
_NONE = "none"


@app.command()
def budget(
    person: Annotated[str, typer.Argument(metavar="PERSON", help="A person's id or name.")] = "",
    *,
    gpu_hours: Annotated[
        str | None,
        typer.Option(
            metavar="HOURS|none", help="The person's own budget; none: the server's default applies."
        ),
    ] = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show people's budgets of GPU hours, or change one.

    Budgets are for 30 days. Viewers and submitters see themselves; operators and admins
    see everybody, and change budgets."""
    hours = None if gpu_hours is None else _hours(gpu_hours)
    if gpu_hours is not None and not person:
        raise ParameterError(
            "--gpu-hours", "no person is named", "assay admin budget PERSON --gpu-hours HOURS"
        )
    with Client(server) as client:
        if gpu_hours is not None:
            client.set_budget(person, hours)
        document = client.budgets(person)
    show(document, as_json, lambda console: render_budgets(document, console))


def _hours(text: str) -> float | None:
    if text.strip().lower() == _NONE:
        return None
    try:
        return float(text)
    except ValueError as error:
        raise ParameterError("--gpu-hours", f"{text!r} is not a number of hours", "or give: none") from error
