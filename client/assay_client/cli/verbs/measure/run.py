"""``assay run CAMPAIGN``: a whole campaign in this one process."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Annotated, Any

import typer

from assay_client.cli.follow import follow, raise_for_failure
from assay_client.cli.options import JsonOption
from assay_client.cli.output import show
from assay_client.cli.reporters.command import render_command
from assay_client.cli.reporters.outcome import render_outcome
from assay_client.cli.verb import VerbCommand, verb_app
from assay_client.local import file_source, require_usable, run_source
from assay_client.local_box import command_box, counter_seconds, published_files
from assay_client.one_box.command import CommandOptions, command_environment, command_source, home_of_person
from assay_client.one_box.measured import measured_command
from assay_client.one_box.unfinished import Source
from assay_client.places import default_state_directory
from assay_client.recordings.units import unit_choice
from assay_core.files.private_folders import private_opener
from assay_core.program_log import LogFormat, log_formatter
from assay_core.settings.quantities import parse_span_seconds, span_text
from assay_sampling.errors import ParameterError, StorageError
from assay_sampling.visible import visible

_LOG_BYTES = 8 << 20
_COMMAND = "assay.run.command"
_OF_A_COMMAND = ("budget", "light_limit", "sm_share", "flush", "unit", "environment")

app = verb_app()


class _RunCommand(VerbCommand):
    """A verb that is given a file, or a command after ``--``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[_COMMAND] = args[args.index("--") + 1 :] if "--" in args else None
        return list(super().parse_args(ctx, args))


@app.command(cls=_RunCommand)
def run(
    ctx: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="CAMPAIGN|COMMAND...",
            help="A campaign file (YAML), or after -- a program of this machine with its arguments.",
        ),
    ],
    *,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="TIME",
            help="For a command: time for counters, such as 90s or 2h; default: 30m.",
        ),
    ] = None,
    light_limit: Annotated[
        str | None,
        typer.Option(
            "--light-limit",
            metavar="TIME",
            help="For a command: end it in light runs after this time, and take its launches until then; 0: "
            "never; default: 10m.",
        ),
    ] = None,
    sm_share: Annotated[
        float | None,
        typer.Option(
            "--sm-share", metavar="PERCENT", help="For a command: another light run at this share of the SMs."
        ),
    ] = None,
    flush: Annotated[
        bool, typer.Option("--flush", help="For a command: also profile with flushed caches.")
    ] = False,
    unit: Annotated[
        str,
        typer.Option(
            "--unit",
            metavar="UNIT",
            help="For a command: operation also records operators and routines; auto: only for Python "
            "programs.",
        ),
    ] = "auto",
    environment: Annotated[
        list[str] | None,
        typer.Option(
            "--environment",
            "-e",
            metavar="NAME[=VALUE]",
            help="For a command: a variable besides PATH, Python's, PyTorch's and the like. Repeatable.",
        ),
    ] = None,
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
            help="The folder for report.json and report.html, and for a command's selection.",
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
        bool, typer.Option("--new", help="Start over, even if an earlier run is unfinished.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a campaign, or measure one program at both levels, inside this process.

    assay run -- python train.py: a light run of all launches (of a program that runs longer, those of its
    first ten minutes: --light-limit), then counters of those that show the most of its time, within the
    budget; then the kernels with the most time, the selection, and what to do next.

    It runs the usual server and agent on a private socket. If it is interrupted or killed, the same command
    continues where it stopped, unless the campaign, a program, the driver or the GPUs have changed since. The
    exit code is 6 if a run failed; the report then covers the others.
    """
    command = ctx.meta[_COMMAND]
    options = _options(budget, light_limit, sm_share, unit, environment, flush=flush)
    say = _say_nothing if as_json else _say
    directory = state or default_state_directory()
    require_usable(directory)
    run_it = functools.partial(
        run_source,
        state_directory=directory,
        output_directory=output,
        virtual_gpus=virtual or (),
        follow=functools.partial(follow, quiet=as_json),
        unfinished="new" if new else "go_on",
        say=say,
    )
    with _log_file(directory / "run.log"):
        if command is None:
            outcome = run_it(file_source(_campaign_file(ctx, words)))
            show(outcome.to_dict(), as_json, lambda console: render_outcome(outcome, console))
        else:
            source = _source(words, command, options, virtual or (), say)
            cost = functools.partial(_say_cost, budget_seconds=options.budget_seconds, say=say)
            outcome = run_it(source, on_light=cost)
            measured = measured_command(
                outcome, functools.partial(published_files, directory), private=output is None
            )
            document = {**outcome.to_dict(), **measured.to_dict()}
            show(document, as_json, lambda console: render_command(outcome, measured, console))
    raise_for_failure(outcome.status)


def _options(
    budget: str | None,
    light_limit: str | None,
    sm_share: float | None,
    unit: str,
    environment: list[str] | None,
    *,
    flush: bool,
) -> CommandOptions:
    """The options of a command; raises ParameterError."""
    seconds = CommandOptions.budget_seconds if budget is None else parse_span_seconds(budget, "--budget")
    if seconds <= 0:
        raise ParameterError("--budget", f"{budget} is not a time", "write 30m, or 90s")
    if sm_share is not None and not 0 < sm_share < 100:
        raise ParameterError("--sm-share", f"{sm_share:g} is not between 0 and 100", "write --sm-share 50")
    limit = CommandOptions.light_limit_seconds
    if light_limit is not None:
        limit = math.ceil(parse_span_seconds(light_limit, "--light-limit"))
    variables = command_environment(environment or (), os.environ, home_of_person())
    return CommandOptions(seconds, sm_share, flush, unit_choice(unit), variables, limit)


def _campaign_file(ctx: typer.Context, words: list[str]) -> Path:
    """The one campaign file; raises ParameterError for more words, or options that only a command has."""
    if len(words) > 1:
        raise ParameterError(
            "assay run",
            f"{len(words)} words are not one campaign file",
            f"a command comes after two dashes: assay run -- {shlex.join(words)}",
        )
    sources = {name: ctx.get_parameter_source(name) for name in _OF_A_COMMAND}
    flags = [
        f"--{name.replace('_', '-')}"
        for name, source in sources.items()
        if source is not None and source.name == "COMMANDLINE"
    ]
    if flags:
        raise ParameterError(
            flags[0], "it is for a command after --", f"write it into {words[0]} ('assay docs campaign-file')"
        )
    return Path(words[0])


def _source(
    words: list[str],
    command: list[str],
    options: CommandOptions,
    virtual: Sequence[str],
    say: Callable[[str], None],
) -> Source:
    """The campaign of a command on this box; raises ParameterError if there is more than the command."""
    if not command or len(words) > len(command):
        raise ParameterError(
            "assay run", "a command is the program and its arguments after --, and nothing before it",
            "write: assay run -- python train.py",
        )  # fmt: skip
    if virtual and command[0].endswith(".toml") and not Path(command[0]).is_file():
        raise ParameterError(
            command[0], "there is no such workload file", "check the path; 'assay samples DIR' writes one"
        )
    return command_source(command, Path.cwd(), command_box(virtual, say), options)


def _say_cost(
    status: Mapping[str, Any], light: Mapping[str, Any], *, budget_seconds: float, say: Callable[[str], None]
) -> None:
    """Say what the light run found, and what counters would cost."""
    seconds = light["attempts"][-1]["wall_seconds"] or 0.0
    slices = [run["slices"] for run in status["runs"] if run["level"] == "detailed"]
    text = f"light run: {light['launches']:,} launches in {seconds:,.0f} s"
    if slices:
        cost = counter_seconds(light["launches"], seconds, slices)
        text += f"; counters of {sum(slices)} slices in {len(slices)} runs next: about {_span(cost)} by what"
        text += f" assay plan assumes, kept to {span_text(budget_seconds)} (--budget)"
    say(text)


def _span(seconds: float) -> str:
    return f"{max(1, round(seconds / 60)):,} min" if seconds >= 60 else f"{max(1, round(seconds))} s"


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
