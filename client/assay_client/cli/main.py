"""The entry point: finds the verb, and alone turns errors into messages and exit codes."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shlex
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from assay_client.cli.reporters.failure import Failure, render_failure
from assay_client.cli.usage import EXIT_USAGE, usage_failure
from assay_client.cli.verb import LazyGroup
from assay_client.cli.verb_list import GROUPS, MODULES
from assay_client.ending import signals_noted
from assay_client.settings import ClientSettings, note_flags, settings_of
from assay_core.program import CONTEXT_SETTINGS, version_option
from assay_core.program_log import LogFormat, LogLevel, set_up_log
from assay_core.settings.command_line import option_of
from assay_sampling.errors import AssayError, ParameterError, StorageError
from assay_sampling.methods.built_in import BUILT_IN

EXIT_INTERNAL = 1
EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_BROKEN_PIPE = 128 + signal.SIGPIPE
_DISK_REFUSED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)


class AllVerbs(LazyGroup):
    """The group of all verbs. A signal or a closed pipe ends a verb quietly, with the shell's exit code."""

    modules = MODULES
    groups = GROUPS

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in MODULES and args[0] in BUILT_IN:
            raise ParameterError(
                "assay",
                f"{args[0]!r} is a method, and methods come after a verb",
                f"write: assay select {shlex.join(args)}",
            )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            _detach_output()
            raise typer.Exit(EXIT_BROKEN_PIPE) from None


app = typer.Typer(
    cls=AllVerbs,
    context_settings=CONTEXT_SETTINGS,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def assay(
    ctx: typer.Context,
    *,
    version: Annotated[bool, version_option("assay")] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show the traceback of an internal error, as ASSAY_DEBUG=1 does."),
    ] = False,
    log_level: Annotated[str | None, option_of(ClientSettings, "log_level")] = None,
    log_format: Annotated[str | None, option_of(ClientSettings, "log_format")] = None,
    socket_owner: Annotated[str | None, option_of(ClientSettings, "socket_owner")] = None,
) -> None:
    """Find the few GPU kernel launches that stand for a whole workload, and prove how well they do."""
    note_flags(socket_owner=socket_owner)
    settings = settings_of(log_level=log_level, log_format=log_format)
    if settings.log_level is not None and not debug:
        set_up_log(settings.log_level, settings.log_format)
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help(), err=True)
        raise typer.Exit(EXIT_USAGE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns an exit code of ``docs/exit-codes.md``. Never raises, never exits."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    before_dashes = words[: words.index("--")] if "--" in words else words
    as_json = "--json" in before_dashes
    debug = "--debug" in before_dashes or os.environ.get("ASSAY_DEBUG", "0") not in ("", "0", "false")
    _prepare_streams(debug)
    with signals_noted(lambda code: _interrupted(code, as_json)):
        try:
            code = _invoke(words)
        except BrokenPipeError:
            _detach_output()
            return EXIT_BROKEN_PIPE
        except SystemExit as error:
            return _exit_code(error)
        except AssayError as error:
            return _fail(Failure.of(error), as_json)
        except ExceptionGroup as group:
            return _fail_each(group, as_json, debug)
        except Exception as error:  # noqa: BLE001 - the last line before a person: one paragraph, no traceback
            if debug:
                traceback.print_exc()
            return _fail(_unexpected(error), as_json)
        _interrupted(code, as_json)
        return code


def _prepare_streams(debug: bool) -> None:
    # gRPC writes to standard error what only its authors understand; our errors say what people need.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    for stream in (sys.stdout, sys.stderr):
        # Names from files and a narrow locale must not turn a finished analysis into a crash.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if debug:
        set_up_log(LogLevel.DEBUG, LogFormat.TEXT)
    else:
        # People need not see the log of server and agent: without a handler Python would print its warnings.
        logging.getLogger().addHandler(logging.NullHandler())


def _invoke(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    result = command.main(args=arguments, prog_name="assay", standalone_mode=False)
    sys.stdout.flush()
    return result if isinstance(result, int) else 0


def _exit_code(error: SystemExit) -> int:
    if isinstance(error.__context__, BrokenPipeError):  # typer ends by itself, after a help page for example
        _detach_output()
        return EXIT_BROKEN_PIPE
    return error.code if isinstance(error.code, int) else EXIT_INTERNAL


def _unexpected(error: Exception) -> Failure:
    if hasattr(error, "format_message"):  # the parser's own
        return usage_failure(error)
    if isinstance(error, OSError) and error.errno in _DISK_REFUSED:
        # Files of ours raise StorageError where they are written: what is left is standard output.
        _detach_output()
        return Failure(
            "StorageError",
            "standard output",
            f"it cannot be written ({error.strerror})",
            "free disk space where it leads, and run the command again",
            StorageError.exit_code,
        )
    if isinstance(error, OSError) and error.errno in _REFUSED and error.filename:
        return Failure(
            "StorageError",
            str(error.filename),
            f"it cannot be used ({error.strerror})",
            "correct its permissions, or name a folder that you may write to (HOME, if it is in your home)",
            StorageError.exit_code,
        )
    if isinstance(error, MemoryError):
        return Failure(
            "MemoryError",
            "assay",
            "this machine does not have enough memory for it",
            "analyse fewer launches, or lower --memory-limit to get this error earlier",
            EXIT_INTERNAL,
        )
    return Failure(
        "InternalError",
        "internal error",
        f"{type(error).__name__}: {error}; this is a bug",
        "run again with --debug before the verb and report what it prints to the authors of Assay",
        EXIT_INTERNAL,
    )


def _fail(failure: Failure, as_json: bool) -> int:
    with contextlib.suppress(BrokenPipeError):
        print(render_failure(failure, as_json=as_json), file=sys.stderr, flush=True)
    return failure.exit_code


def _fail_each(group: ExceptionGroup[Exception], as_json: bool, debug: bool) -> int:
    """Print each of several errors; the exit code is that of the first."""
    ours, others = group.split(AssayError)
    if others is not None and debug:
        traceback.print_exception(others)
    errors = [*(ours.exceptions if ours else ()), *(others.exceptions if others else ())]
    codes = [
        _fail(Failure.of(each) if isinstance(each, AssayError) else _unexpected(each), as_json)
        for each in errors
    ]
    return codes[0]


def _interrupted(code: int, as_json: bool) -> None:
    if code == EXIT_INTERRUPTED:
        _fail(Failure("Interrupted", "assay", "interrupted", "", EXIT_INTERRUPTED), as_json)


def _detach_output() -> None:
    """Discard what is still buffered for a closed pipe, or the interpreter complains when it exits."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
