"""The program ``assay-server``."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from assay_sampling.errors import AssayError, MissingExtraError
from assay_sampling.server_address import default_address
from assay_server.config import ServerConfig, server_version
from assay_server.ending import until_asked_to_end

program = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@program.command()
def serve(
    *,
    state: Annotated[Path, typer.Option(help="Folder of metadata, records and reports; made if missing.")],
    listen: Annotated[
        list[str] | None,
        typer.Option(
            help="unix:PATH, or HOST:PORT on loopback (port 0: any free), to which any user of this machine "
            "can connect; repeatable [this user's own socket]."
        ),
    ] = None,
    lease_ms: Annotated[int, typer.Option(help="A silent attempt goes to another slot after this.")] = 60_000,
    heartbeat_ms: Annotated[int, typer.Option(help="How often agents give a sign of life.")] = 5_000,
    analysis_workers: Annotated[int, typer.Option(help="Processes that analyse campaigns.")] = 1,
    json_output: Annotated[bool, typer.Option("--json", help="Print the addresses as JSON.")] = False,
    verbose: Annotated[bool, typer.Option(help="Log more, to standard error.")] = False,
) -> None:
    """Serve campaigns until SIGTERM or Ctrl-C: plan, lease, store, analyse."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    # gRPC writes to standard error what only its authors can read; our errors say what people need.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        config = ServerConfig(
            state_dir=state.absolute(),
            listen=tuple(listen or (default_address(),)),
            lease_ms=lease_ms,
            heartbeat_ms=heartbeat_ms,
            analysis_workers=analysis_workers,
        )
        _serve(config, json_output)
    except AssayError as error:
        typer.echo(f"assay-server: {error}", err=True)
        raise typer.Exit(error.exit_code) from None


def _serve(config: ServerConfig, json_output: bool) -> None:
    with until_asked_to_end() as wait, _server_class()(config) as server:
        if json_output:
            text = json.dumps(
                {"addresses": server.addresses, "state": str(config.state_dir), "version": server_version()}
            )
        else:
            text = f"listening on {' '.join(server.addresses)}"
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        wait()


def _server_class() -> Any:
    try:
        from assay_server.app import Server  # noqa: PLC0415 - without its extra, the program says so
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("assay_"):
            raise
        raise MissingExtraError("assay-server", error.name or "?", "server") from None
    return Server


def main() -> None:
    """The console script."""
    program()


if __name__ == "__main__":
    main()
