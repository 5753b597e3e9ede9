"""Verbs that ask for something of a campaign, one of its workloads, or one of its runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from assay_client.cli.options import CampaignArgument, JsonOption, RunOption, ServerOption, WorkloadOption
from assay_client.cli.output import show
from assay_client.cli.reporters.runs_request import render_request
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client


def request_verb(name: str, ask: Callable[..., dict[str, Any]], text: str) -> typer.Typer:
    """The verb ``name``; ``ask`` is the method of :class:`Client` that asks for it, ``text`` its help."""
    app = verb_app()

    @app.command(name, help=text)
    def verb(
        campaign_id: CampaignArgument,
        *,
        workload: WorkloadOption = "",
        run_id: RunOption = "",
        server: ServerOption = None,
        as_json: JsonOption = False,
    ) -> None:
        with Client(server) as client:
            answer = ask(client, campaign_id, workload=workload, run_id=run_id)
        show(answer, as_json, lambda console: render_request(answer, console))

    return app
