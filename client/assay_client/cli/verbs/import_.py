"""``assay import FILE...``: finished measurements into a campaign's store, as a recorded run."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from assay_client.cli.follow import follow, raise_for_failure
from assay_client.cli.inputs import RECORDING, require
from assay_client.cli.options import JsonOption, SyntheticOption
from assay_client.cli.output import show
from assay_client.cli.reporters.imported import render_imported
from assay_client.cli.verb import verb_app
from assay_client.local import run_campaign
from assay_client.places import default_state_directory
from assay_client.recordings.importing import campaign_text, check_kind, parse_condition, recorded_run
from assay_client.remote.client import Client
from assay_sampling.errors import ParameterError

app = verb_app()


@app.command(name="import")
def import_(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            readable=False,
            metavar="FILE...",
            help="Recordings of any known format, at most one of each level.",
        ),
    ] = None,
    *,
    workload: Annotated[str, typer.Option("--workload", metavar="NAME", help="What was recorded.")],
    device: Annotated[str, typer.Option("--device", metavar="KIND", help="The kind of GPU, such as V100.")],
    condition: Annotated[
        list[str] | None,
        typer.Option(
            "--condition",
            metavar="NAME=VALUE",
            help="Under what it was recorded: cache=all, clock=base, sm_percent=50, sm_share=partition; "
            "repeatable.",
        ),
    ] = None,
    detailed: Annotated[
        Path | None,
        typer.Option("--detailed", readable=False, metavar="FILE", help="A recording with counters."),
    ] = None,
    light: Annotated[
        Path | None,
        typer.Option("--light", readable=False, metavar="FILE", help="A recording of the free run."),
    ] = None,
    name: Annotated[
        str,
        typer.Option(
            "--name", metavar="NAME", help="The campaign's name; default: made from the workload's."
        ),
    ] = "",
    server: Annotated[
        str | None,
        typer.Option(
            "--server", metavar="ADDRESS", help="Submit to this server; an agent there must see the files."
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            readable=False,
            metavar="DIR",
            help="Import inside this process into this state folder.",
        ),
    ] = None,
    synthetic: SyntheticOption = False,
    as_json: JsonOption = False,
) -> None:
    """Bring recordings into a campaign's store as a recorded run.

    Takes any file that `assay inspect` reads. Without --server it imports inside this process, and the exit
    code is 6 if the run failed.
    """
    if server is not None and state is not None:
        raise ParameterError("--state", "it cannot be combined with --server", "give one of the two")
    require(RECORDING, *(files or []), detailed, light)
    run = recorded_run(files or [], detailed=detailed, light=light, synthetic=synthetic)
    check_kind(device, run)
    text = campaign_text(
        run, workload=workload, device=device, name=name, condition=parse_condition(condition or [])
    )
    with tempfile.TemporaryDirectory(prefix="assay-") as directory:
        campaign = Path(directory) / "import.yaml"
        campaign.write_text(text, "utf-8")
        status = _submit(campaign, server) if server else _run(campaign, state, as_json)
    document = {"campaign": status}
    show(document, as_json, lambda console: render_imported(status, console))
    raise_for_failure(status)


def _submit(campaign: Path, server: str) -> dict[str, Any]:
    with Client(server) as client:
        return client.status(client.submit(campaign))


def _run(campaign: Path, state: Path | None, quiet: bool) -> dict[str, Any]:
    outcome = run_campaign(
        campaign, state or default_state_directory(), follow=functools.partial(follow, quiet=quiet)
    )
    return dict(outcome.status)
