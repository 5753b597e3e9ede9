"""``assay demo``: the example campaign on virtual GPUs, through a server and three agents as processes."""

from __future__ import annotations

import functools
import select
import sys
from pathlib import Path
from typing import Annotated

import typer

from assay_client.cli.follow import follow, raise_for_failure
from assay_client.cli.options import JsonOption
from assay_client.cli.output import show
from assay_client.cli.reporters.demo import render_demo
from assay_client.cli.verb import verb_app
from assay_client.demonstration.demo import NOTICE, run_demo, show_page

app = verb_app()


@app.command()
def demo(
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out", readable=False, metavar="DIR", help="Campaign, state, logs and the report go here."
        ),
    ] = Path("assay-demo"),
    campaign: Annotated[
        Path | None,
        typer.Option(
            "--campaign",
            readable=False,
            metavar="FILE",
            hidden=True,
            help="Another campaign for the same GPUs.",
        ),
    ] = None,
    page: Annotated[
        bool, typer.Option("--page", help="Serve the live page of a demo that has finished, until Ctrl-C.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run everything once on virtual GPUs, in under two minutes.

    A server and three agents as processes, nine workloads at two levels, flushed caches, half of the SMs. If
    it is killed, run it again and it continues. Everything is synthetic: no silicon is measured. On a
    terminal it then keeps serving its live page, until Enter or Ctrl-C."""
    if page:
        show_page(out, say=_say)
        return
    if not as_json:
        _say(NOTICE)
    stays = not as_json and all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    outcome = run_demo(out, follow=functools.partial(follow, quiet=as_json), say=_say, campaign=campaign)
    document = {"synthetic": True, **outcome.to_dict()}
    show(document, as_json, lambda drawn: render_demo(outcome, out, drawn, stays=stays))
    if stays and outcome.report is not None:
        show_page(out, say=_say, until=_enter_was_pressed)
    raise_for_failure(outcome.status)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _enter_was_pressed() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])
