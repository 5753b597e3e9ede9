"""``assay run CAMPAIGN``: a whole campaign in this one process."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
from collections.abc import Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Annotated, Any

import typer

from assay_client.cli.follow import follow, raise_for_failure
from assay_client.cli.options import JsonOption
from assay_client.cli.output import show
from assay_client.cli.reporters.outcome import render_outcome
from assay_client.cli.verb import verb_app
from assay_client.local import require_usable, run_campaign
from assay_client.places import default_state_directory
from assay_core.files.private_folders import private_opener
from assay_core.program_log import LogFormat, log_formatter
from assay_sampling.errors import StorageError
from assay_sampling.visible import visible

_LOG_BYTES = 8 << 20

app = verb_app()


@app.command()
def run(
    campaign: Annotated[
        Path, typer.Argument(readable=False, metavar="CAMPAIGN", help="A campaign file (YAML).")
    ],
    *,
    state: Annotated[
        Path | None,
        typer.Option(
            "--state",
            readable=False,
            metavar="DIR",
            help="The folder that keeps records; default: the user's state folder.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            readable=False,
            metavar="DIR",
            help="The folder for report.json and report.html.",
        ),
    ] = None,
    virtual: Annotated[
        list[str] | None,
        typer.Option(
            "--virtual",
            metavar="KIND[:COUNT]",
            help="Offer virtual GPUs (V100, 'RTX 2060:2') to a synthetic campaign; repeat it for more kinds.",
        ),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Begin again, though an earlier run of it is not finished.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a campaign inside this process and show its report.

    It runs the usual server and agent on a private socket. If it is interrupted or killed, the same command
    goes on where it was, unless the campaign, a program, the driver or the GPUs have changed since.
    The exit code is 6 if a run failed; the report then covers the others.
    """
    directory = state or default_state_directory()
    require_usable(directory)
    with _log_file(directory / "run.log"):
        outcome = run_campaign(
            campaign,
            directory,
            output_directory=output,
            virtual_gpus=virtual or (),
            follow=functools.partial(follow, quiet=as_json),
            unfinished="new" if new else "go_on",
            say=_say_nothing if as_json else _say,
        )
    show(outcome.to_dict(), as_json, lambda console: render_outcome(outcome, console))
    raise_for_failure(outcome.status)


def _say(text: str) -> None:
    print(visible(text), file=sys.stderr, flush=True)


def _say_nothing(_text: str) -> None:
    pass


class _PrivateLog(RotatingFileHandler):
    """A rotating log that only this user can read."""

    def _open(self) -> Any:
        return open(self.baseFilename, self.mode, encoding=self.encoding, opener=private_opener)


@contextlib.contextmanager
def _log_file(path: Path) -> Iterator[None]:
    """Write the log of server and agent to a file, as their own programs would."""
    try:
        handler = _PrivateLog(path, maxBytes=_LOG_BYTES, backupCount=1, encoding="utf-8")
    except OSError as error:
        raise StorageError(
            str(path), f"it cannot be made ({error.strerror})", "name another folder with --state"
        ) from error
    handler.setFormatter(log_formatter(LogFormat.TEXT))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(min(level, logging.INFO) if level else logging.INFO)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        # A full disk refuses the last lines of the log; that must not hide how the run ended.
        with contextlib.suppress(OSError):
            handler.close()
