"""``assay lab gpus``: the GPUs of the lab and what they do."""

from __future__ import annotations

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.lab import render_gpus
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client

app = verb_app()


@app.command()
def gpus(*, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """List GPUs and what each is running."""
    with Client(server) as client:
        document = client.gpus()
    show(document, as_json, lambda console: render_gpus(document, console))
