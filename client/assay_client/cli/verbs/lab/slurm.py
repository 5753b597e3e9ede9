"""``assay lab slurm sbatch``: submit agents as Slurm jobs."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from assay_client.cli.options import JsonOption, parse_parameters
from assay_client.cli.output import console, show
from assay_client.cli.reporters.slurm import render_submitted
from assay_client.cli.verb import verb_app
from assay_client.slurm.checks import doubts, require_private_root
from assay_client.slurm.script import AgentJob, further_options, job_script
from assay_client.slurm.submission import SubmittedAgents, job_names, submit
from assay_core.connecting.token_option import TOKEN_VARIABLE, token_in_file
from assay_core.settings.quantities import parse_span_seconds
from assay_sampling.errors import ParameterError
from assay_sampling.visible import visible

app = verb_app()


@app.callback()
def slurm() -> None:
    """Submit agents as jobs of a Slurm cluster."""


@app.command()
def sbatch(
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="OPTION...", help="Further options of assay-agent run, after two dashes."),
    ] = None,
    *,
    state_root: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Private folder on a file system shared by all nodes; each job keeps its state in it.",
        ),
    ],
    join: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="The server's --join listener; needs a token of role agent."),
    ] = "",
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"Private file with the join token, visible to all nodes; else ${TOKEN_VARIABLE}.",
        ),
    ] = None,
    server: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Address of the server, if it is not the one that was joined."),
    ] = "",
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Policy file of the agents, visible to all nodes.")
    ] = None,
    agents: Annotated[
        int, typer.Option(metavar="NUMBER", min=1, max=10_000, help="How many; a job array if more than one.")
    ] = 1,
    gres: Annotated[
        str, typer.Option(metavar="TEXT", help="GPUs of each agent, as sbatch takes them.")
    ] = "gpu:1",
    partition: Annotated[str, typer.Option(metavar="NAME", help="Slurm's partition.")] = "",
    account: Annotated[str, typer.Option(metavar="NAME", help="Slurm's account.")] = "",
    time: Annotated[str, typer.Option(metavar="TIME", help="Time limit, such as 4:00:00.")] = "",
    exclusive: Annotated[
        bool, typer.Option("--exclusive", help="No other job on the node: neighbours disturb measurements.")
    ] = False,
    drain: Annotated[
        str,
        typer.Option(
            metavar="SPAN", help="How long a run may continue after Slurm's signal before the limit."
        ),
    ] = "45s",
    requeue_at_limit: Annotated[
        bool,
        typer.Option("--requeue-at-limit", help="Run again after the time limit, until you cancel the job."),
    ] = False,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--sbatch", metavar="NAME=VALUE", help="A further option of sbatch, such as mem=8G. Repeatable."
        ),
    ] = None,
    agent: Annotated[
        str,
        typer.Option(
            metavar="COMMAND",
            help="Command that starts assay-agent on a node. [default: the one of this Python]",
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the job script; submit nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Submit agents as Slurm jobs, which measure on their job's GPUs.

    A requeued job continues as the same agent with the same runs ('assay docs slurm')."""
    root = Path(os.path.abspath(state_root))  # noqa: PTH100 - links are the business of the nodes
    program = _program(agent)
    if not join and not server:
        raise ParameterError("--join", "no server is named", "give --join HOST:PORT, or --server ADDRESS")
    _require_token(join, token_file, needed=not dry_run)
    directives = {
        name: value
        for name, value in {"partition": partition, "account": account, "time": time, "gres": gres}.items()
        if value
    }
    directives |= further_options(parse_parameters(option or (), "--sbatch", "mem=8G"))
    if exclusive:
        directives["exclusive"] = ""
    job = AgentJob(
        program,
        root,
        agents,
        round(parse_span_seconds(drain, "--drain")),
        directives,
        _arguments(
            join,
            server,
            {"--token-file": token_file, "--policy": policy},
            requeue=requeue_at_limit,
            further=arguments or (),
        ),
    )
    script = job_script(job)
    warnings = doubts([each for each in (join, server) if each], program, policy)
    job_id, cluster = None, ""
    if not dry_run:
        require_private_root(root)
        job_id, cluster = submit(script, directives, with_token=bool(join) and token_file is None)
    made = SubmittedAgents(
        job_id=job_id,
        cluster=cluster,
        jobs=[] if job_id is None else job_names(job_id, agents),
        state_root=str(root),
        script=script,
        warnings=warnings,
    )
    _show(made, as_json)


def _show(made: SubmittedAgents, as_json: bool) -> None:
    """Print what was submitted; of a dry run the script as it is, so that it can be piped to sbatch."""
    if not as_json:
        for text in made.warnings:
            console(error=True).print(f"warning: {visible(text)}", soft_wrap=True)
    if made.job_id is None and not as_json:
        typer.echo(made.script, nl=False)
    else:
        show(made.to_dict(), as_json, lambda drawn: render_submitted(made, drawn))


def _program(command: str) -> list[str]:
    """The words that start the agent: those of a command, else the program beside this Python."""
    if not command:
        return [str(Path(sys.executable).with_name("assay-agent"))]
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ParameterError("--agent", f"{error}", "quote its words as for a shell") from error
    if not words:
        raise ParameterError("--agent", "it is empty", "give the command that starts assay-agent")
    return words


def _require_token(join: str, token_file: Path | None, *, needed: bool) -> None:
    """Raise ParameterError or StorageError if agents have no token to join with."""
    if token_file is not None:
        if not join:
            raise ParameterError("--token-file", "there is nothing to join", "give --join HOST:PORT")
        if needed:
            token_in_file(token_file)
    elif join and needed and not os.environ.get(TOKEN_VARIABLE):
        raise ParameterError(
            "--token-file",
            f"agents need a join token, and neither a file nor ${TOKEN_VARIABLE} gives one",
            "make one: assay admin token --role agent --uses NUMBER --valid 7d; "
            "write it into a file of mode 0600",
        )


def _arguments(
    join: str, server: str, files: Mapping[str, Path | None], *, requeue: bool, further: Sequence[str]
) -> list[str]:
    """The words for ``assay-agent slurm-job``; files by their absolute paths, because it runs elsewhere."""
    options = {"--join": join, "--server": server}
    options |= {name: os.path.abspath(path) for name, path in files.items() if path is not None}  # noqa: PTH100
    words = [f"{name}={value}" for name, value in options.items() if value]
    return [*words, *(("--requeue",) if requeue else ()), *further]
