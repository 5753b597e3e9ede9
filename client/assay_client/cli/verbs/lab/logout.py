"""``assay lab logout``: revoke and delete the login to a server."""

from __future__ import annotations

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.identities import render_logout
from assay_client.cli.verb import verb_app
from assay_client.remote.addresses import server_address
from assay_client.remote.logins import log_out
from assay_sampling.errors import ParameterError

app = verb_app()


@app.command()
def logout(*, server: ServerOption = None, as_json: JsonOption = False) -> None:
    """Log out of a server: revoke and delete the certificate.

    If the server does not answer, the certificate stays valid until it expires or an admin revokes it."""
    address = server_address(server)
    answer = log_out(address)
    if answer is None:
        raise ParameterError(address, "there is no login to it on this machine", "name it with --server")
    document = {"server": address, "logged_out": True, **answer}
    show(document, as_json, lambda console: render_logout(document, console))
