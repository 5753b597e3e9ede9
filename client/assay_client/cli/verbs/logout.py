"""``assay logout``: forget the login to a server."""

from __future__ import annotations

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.verb import verb_app
from assay_client.remote.connection import server_address
from assay_client.remote.logins import log_out
from assay_sampling.errors import ParameterError

app = verb_app()


@app.command()
def logout(*, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """Remove the login to a server from this machine.

    Its certificate stays valid until it expires; 'assay revoke' withdraws it."""
    address = server_address(server)
    if not log_out(address):
        raise ParameterError(address, "there is no login to it on this machine", "name it with --server")
    document = {"server": address, "logged_out": True}
    show(document, as_json, lambda console: console.print(f"logged out of {address}"))
