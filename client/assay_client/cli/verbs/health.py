"""``assay health``: whether the server does its work, for probes and people."""

from __future__ import annotations

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client
from assay_sampling.errors import NotReadyError

app = verb_app()


@app.command()
def health(*, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """Ask the server whether it does its work.

    Ends with 0 if it serves, 5 if nothing answers, 10 if it is ending or cannot write its state."""
    with Client(server) as client:
        address, serving = client.address, client.is_serving()
    said = f"{address}: {'serving' if serving else 'not serving'}"
    show({"address": address, "serving": serving}, as_json, lambda console: console.print(said))
    if not serving:
        raise NotReadyError(
            address,
            "the server is ending, or cannot write its state",
            "look at its log; free space on the disk of its state folder",
        )
