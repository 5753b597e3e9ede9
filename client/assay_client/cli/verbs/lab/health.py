"""``assay lab health``: server health, for probes and people."""

from __future__ import annotations

from typing import Annotated

import typer
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.verb import verb_app
from assay_client.remote.client import Client
from assay_core.settings.quantities import parse_span_seconds
from assay_sampling.errors import NotReadyError, ServerUnreachableError

app = verb_app()

_RETRY_SECONDS = 0.2


@app.command()
def health(
    *,
    wait: Annotated[
        str,
        typer.Option(
            "--wait", metavar="TIME", help="How long to wait for a server that is starting: 60s, 2m."
        ),
    ] = "0",
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check server health.

    Ends with 0 if it serves, 5 if nothing answers, 10 if it is ending or cannot write its state."""
    retrying = Retrying(
        retry=retry_if_exception_type(ServerUnreachableError),
        stop=stop_after_delay(parse_span_seconds(wait, "--wait")),
        wait=wait_fixed(_RETRY_SECONDS),
        reraise=True,
    )
    address, serving = retrying(_health, server)
    line = f"{address}: {'serving' if serving else 'not serving'}"
    show({"address": address, "serving": serving}, as_json, lambda console: console.print(line))
    if not serving:
        raise NotReadyError(
            address,
            "the server is ending, or cannot write its state",
            "look at its log; free space on the disk of its state folder",
        )


def _health(server: str | None) -> tuple[str, bool]:
    """The server's address, and whether it serves. Raises ServerUnreachableError."""
    with Client(server) as client:
        return client.address, client.is_serving()
