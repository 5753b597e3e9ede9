"""``assay explain WHAT``: why this launch, why this run, what a code means, and what to do."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated

import typer

from assay_client.cli.inputs import RECORDING, SELECTION, require
from assay_client.cli.options import JsonOption, MemoryLimitOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.progress import activity
from assay_client.cli.reporters.explained import (
    render_campaign_explained,
    render_meanings,
    render_selection_explained,
)
from assay_client.cli.verb import FileVerbCommand, verb_app
from assay_client.meanings import all_codes, meanings_of
from assay_client.recordings.analyses import load_selection, read_profile
from assay_client.recordings.explained import explain_selection
from assay_client.remote.client import Client
from assay_client.remote.explained import explain_campaign, explain_run
from assay_client.settings import settings_of
from assay_sampling.errors import CampaignError, ParameterError, ServerUnreachableError

app = verb_app()

# The server numbers campaigns ("training-1") and their runs ("training-1.0004").
_CAMPAIGN_OR_RUN = re.compile(r"-\d+(\.\d+)?$")


@app.command(cls=FileVerbCommand)
def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="A selection.json; a code such as launches_dropped; the id of a campaign or run.",
        ),
    ],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            readable=False,
            metavar="FILE",
            help="The recordings that the selection was made on, to find the group of any launch.",
        ),
    ] = None,
    *,
    launch: Annotated[
        str | None,
        typer.Option(
            "--launch", metavar="[PROCESS:]LAUNCH", help="A launch, counted from 0; default process: 0."
        ),
    ] = None,
    memory_limit: MemoryLimitOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain a selection, a launch, a run, or a code.

    For a selection: why each launch was chosen; with --launch, the group of a launch and its representative.
    For a note, flag or failure: what it means and what to do. For a campaign or run: why it waits, failed, or
    is flagged; for a run also its attempts: command, environment, log and facts."""
    path = Path(what)
    if path.exists() or path.suffix == ".json" or files:
        limit = settings_of(memory_limit_bytes=memory_limit).memory_limit_bytes
        _selection(path, files or [], launch, limit, as_json)
    elif launch is not None:
        raise ParameterError("--launch", f"{what} is not a selection", "name the selection.json")
    elif meanings := meanings_of(what):
        document = {"meanings": [each.to_dict() for each in meanings]}
        show(document, as_json, lambda console: render_meanings(meanings, console))
    else:
        _campaign(what, server, as_json)


def _selection(
    path: Path, files: list[Path], launch: str | None, memory_limit_bytes: int, as_json: bool
) -> None:
    require(SELECTION, path)
    require(RECORDING, *files)
    launch_key = None if launch is None else _parsed(launch)
    with activity(f"reading {path}") as shown:
        saved = load_selection(path)
        whole = None
        if files:
            shown.say("reading " + ", ".join(map(str, files)))
            whole = read_profile(files, memory_limit_bytes=memory_limit_bytes).whole
        explanation = explain_selection(saved, whole, launch_key)
    show(explanation.to_dict(), as_json, lambda console: render_selection_explained(explanation, console))


def _parsed(launch: str) -> tuple[int, int]:
    process, _, number = launch.rpartition(":")
    try:
        return int(process or "0"), int(number)
    except ValueError:
        raise ParameterError(
            "--launch", f"{launch!r} is not [PROCESS:]LAUNCH", "write a number, such as 812 or 1:812"
        ) from None


def _campaign(what: str, server: str | None, as_json: bool) -> None:
    close = difflib.get_close_matches(what, all_codes(), n=1, cutoff=0.75)
    try:
        with Client(server) as client:
            explanation = explain_run(client, what) if "." in what else explain_campaign(client, what)
    except (CampaignError, ServerUnreachableError) as error:
        if close:
            raise _unknown(what, close[0]) from error
        if isinstance(error, ServerUnreachableError) and not _CAMPAIGN_OR_RUN.search(what):
            raise _no_code(what) from error
        raise
    show(explanation.to_dict(), as_json, lambda console: render_campaign_explained(explanation, console))


def _unknown(what: str, close: str) -> ParameterError:
    return ParameterError(
        "assay explain",
        f"there is no code {what!r}; did you mean {close}?",
        "assay docs notes lists all notes",
    )


def _no_code(what: str) -> ParameterError:
    return ParameterError(
        "assay explain",
        f"{what!r} is not a file, a code, or the id of a campaign or run such as my-campaign-1.0004",
        "assay docs notes, assay docs validity and assay docs failures list all codes",
    )
