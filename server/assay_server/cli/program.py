"""The command line of ``assay-server``: it serves, unless a verb is given."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from assay_core.loading import collect_garbage_seldom, loading
from assay_core.program import CONTEXT_SETTINGS, distribution_version, version_option
from assay_core.program_log import log_crashes, set_up_log
from assay_core.settings.command_line import with_settings
from assay_sampling.errors import AssayError, ParameterError
from assay_server.cli.authority import init, token
from assay_server.cli.health import health
from assay_server.cli.output import server_extra, show
from assay_server.cli.state import backup, check, move, restore
from assay_server.config import ServerSettings
from assay_server.signals import StandbyEndedError, until_asked_to_end

_log = logging.getLogger(__name__)

program = typer.Typer(
    context_settings=CONTEXT_SETTINGS, pretty_exceptions_enable=False, rich_markup_mode=None
)


@program.callback(invoke_without_command=True)
@with_settings(ServerSettings)
def serve(
    context: typer.Context,
    *,
    again: Callable[[], ServerSettings],
    json_output: Annotated[bool, typer.Option("--json", help="Print the addresses as JSON.")] = False,
    version: Annotated[bool, version_option("assay-server")] = False,
) -> None:
    """Serve campaigns until SIGTERM or Ctrl-C: plan, lease, store, analyse."""
    if context.invoked_subcommand is not None:
        _require_no_options(context, context.invoked_subcommand)
        return
    settings = _absolute(again())
    set_up_log(settings.log_level, settings.log_format)
    log_crashes()
    # gRPC's own messages on standard error only help its authors; our errors say what people need.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Arrow reads this as it is loaded. Its own allocator gives memory back to the kernel between row groups
    # and fetches it again, which is a tenth of the time of ingest.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    _serve(settings, lambda: _absolute(again()), json_output)


def _absolute(settings: ServerSettings) -> ServerSettings:
    return settings.model_copy(update={"state_dir": settings.state_dir.absolute()})


def _require_no_options(context: typer.Context, verb: str) -> None:
    """Raise ParameterError for an option before a verb, which has its own and does not see these."""
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if source is not None and source.name == "COMMANDLINE":
            written = option.opts[0]
            raise ParameterError(
                written,
                f"it comes before the verb {verb!r}, which ignores it",
                f"write it after the verb: assay-server {verb} {written} ...",
            )


for _verb in (init, token, backup, restore, check, move, health):
    program.command()(_verb)


def _serve(settings: ServerSettings, again: Callable[[], ServerSettings], json_output: bool) -> None:
    def reload() -> None:
        try:
            server.reload(again())
        except AssayError as error:
            _log.error("reload is refused, and nothing has changed: %s", error)
        else:
            set_up_log(server.settings.log_level, server.settings.log_format)

    with until_asked_to_end(reload) as ending:
        with server_extra(), loading():
            from assay_server.app import Server  # noqa: PLC0415 - without its extra, the program says so

        server = Server(settings, is_ending=ending.is_asked, end=ending.ask)
        try:
            with server:
                _tell_addresses(server, json_output)
                collect_garbage_seldom()
                ending.wait()
                if server.lead.lost is not None:
                    _end_at_once(server.lead.lost)
        except StandbyEndedError:
            _log.info("asked to stop while on standby")


def _end_at_once(error: AssayError) -> None:
    """End as if killed: in order it might wait for ever for a database that it cannot reach any more."""
    typer.echo(f"assay-server: {error}", err=True)
    logging.shutdown()
    os._exit(error.exit_code)


def _tell_addresses(server: Any, json_output: bool) -> None:
    document = {
        "addresses": server.addresses,
        "metrics": server.metrics_address,
        "join": server.joins,
        "web": server.web_address,
        "state": str(server.settings.state_dir),
        "version": distribution_version(),
    }
    text = f"listening on {' '.join(server.addresses)}"
    text += f", joining at {' '.join(server.joins)}" if server.joins else ""
    text += f", page at {server.web_address}" if server.web_address else ""
    show(document, text, as_json=json_output)


def run_program() -> None:
    """Run the command line; print a typed error as one paragraph on standard error and set the exit code."""
    try:
        program()
    except AssayError as error:
        typer.echo(f"assay-server: {error}", err=True)
        sys.exit(error.exit_code)
