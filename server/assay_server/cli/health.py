"""``assay-server health``: whether a server on this machine does its work, for probes."""

from __future__ import annotations

from typing import Annotated

import typer

from assay_core.server_address import (
    SOCKET_OWNER_VARIABLE,
    default_address,
    parse_address,
    require_our_socket,
)
from assay_sampling.errors import NotReadyError, ParameterError, ServerUnreachableError
from assay_server.cli.output import JsonOption, show

_SECONDS = 5.0


def health(
    address: Annotated[
        str, typer.Argument(metavar="[ADDRESS]", help="unix:PATH; by default this user's own socket.")
    ] = "",
    socket_owner: Annotated[
        str,
        typer.Option(
            "--socket-owner",
            metavar="USER",
            envvar=SOCKET_OWNER_VARIABLE,
            show_envvar=False,
            help="User whose server with --socket-group is trusted.",
        ),
    ] = "",
    json_output: JsonOption = False,
) -> None:
    """Check the health of a server on this machine.

    Ends with 0 if it serves, 5 if nothing answers, 10 if it is ending or cannot write its state."""
    place = parse_address(address or default_address(), "ADDRESS")
    if place.socket is None:
        raise ParameterError(
            "ADDRESS",
            f"{place.text!r} is not a socket, and over TCP the server must know the caller",
            f"assay lab health --server {place.text}",
        )
    require_our_socket(place, "ADDRESS", socket_owner)
    serving = _is_serving(place.text)
    text = f"{place.text}: {'serving' if serving else 'not serving'}"
    show({"address": place.text, "serving": serving}, text, as_json=json_output)
    if not serving:
        raise NotReadyError(
            place.text,
            "the server is ending, or cannot write its state",
            "look at its log; free space on the disk of its state folder",
        )


def _is_serving(address: str) -> bool:
    # Here, because gRPC reads its settings when it is imported, and the server sets them at its start.
    import grpc  # noqa: PLC0415

    from assay_core.health_probe import is_serving  # noqa: PLC0415

    try:
        with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            return is_serving(channel, _SECONDS)
    except grpc.RpcError as error:
        cause = f"it does not answer ({error.code().name})" if isinstance(error, grpc.Call) else str(error)
        raise ServerUnreachableError(address, cause, "look at its log, and start it") from error
