"""``assay demo``: one campaign of synthetic recordings through a real server and a real agent."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import typer

from assay_client.cli.follow import follow, raise_for_failure
from assay_client.cli.options import JsonOption
from assay_client.cli.output import console, show
from assay_client.cli.reporters.outcome import render_outcome
from assay_client.cli.verb import verb_app
from assay_client.client import Client
from assay_client.connection import ENDED_STATES
from assay_client.demo_data import write_demo_data
from assay_client.outcome import Outcome, see_through
from assay_client.processes import running_service
from assay_sampling.errors import StorageError

app = verb_app()


@app.command()
def demo(
    *,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Recordings, state, logs and the report go here.")
    ] = Path("assay-demo"),
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the generator of recordings.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Show the whole way on synthetic recordings.

    In under a minute: recordings, server and agent as processes, report. The recordings come from a
    seeded generator: no silicon was measured.
    """
    if not as_json:
        console(error=True).print(
            f"synthetic recordings from a seeded generator (seed {seed}): no silicon was measured"
        )
    outcome = _run(out, seed, as_json)
    document = {"synthetic": True, "generator_seed": seed, **outcome.to_dict()}
    show(document, as_json, lambda drawn: render_outcome(outcome, drawn))
    raise_for_failure(outcome.status)


def _run(out: Path, seed: int, quiet: bool) -> Outcome:
    work = out / f"seed-{seed}"
    campaign_file = _recordings(work / "recordings", seed)
    with running_service(work / "state", work / "logs") as service, Client(service.address) as client:
        unfinished = [c["campaign_id"] for c in client.campaigns() if c["state"] not in ENDED_STATES]
        # A demo that was killed is taken up where it was left: that is what the state is for.
        campaign_id = unfinished[0] if unfinished else client.submit(campaign_file)
        return see_through(client, campaign_id, out, functools.partial(follow, quiet=quiet))


def _recordings(directory: Path, seed: int) -> Path:
    try:
        return write_demo_data(directory, seed=seed)
    except OSError as error:
        raise StorageError(
            str(directory),
            f"the demo's recordings cannot be written ({error.strerror or error})",
            "free space there, or name another folder with --out",
        ) from error
