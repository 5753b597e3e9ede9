"""``assay lab queue``: why runs wait, who is ahead, and until when."""

from __future__ import annotations

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.lab import render_queue
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client

app = verb_app()


@app.command()
def queue(*, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """Show why runs wait, who is ahead, and for how long."""
    with Client(server) as client:
        document = client.queue()
    show(document, as_json, lambda console: render_queue(document, console))
