"""``assay init [PATH]``: a commented campaign file to start from, and its JSON schema for editors."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from assay_client.campaign_template import CAMPAIGN_TEMPLATE, SCHEMA_FILE
from assay_client.cli.options import JsonOption
from assay_client.cli.output import json_text, show
from assay_client.cli.reporters.warnings import render_warnings
from assay_client.cli.verb import verb_app
from assay_client.files import write_atomically
from assay_client.local import campaign_schema, check_campaign
from assay_client.new_campaign import NewCampaign, campaign_of_commands, campaign_of_suite
from assay_sampling.errors import ParameterError, StorageError

app = verb_app()


@app.command()
def init(
    path: Annotated[
        Path,
        typer.Argument(
            readable=False,
            metavar="PATH",
            help="The file to write (.yaml), or a folder for it; a missing folder is created.",
        ),
    ] = Path("campaign.yaml"),
    *,
    command: Annotated[
        list[str] | None,
        typer.Option(
            "--command",
            metavar="COMMAND",
            help="A program with its arguments, as one string, or a workload file of virtual GPUs. "
            "Repeatable.",
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite", metavar="NAME", help="A suite: rodinia, parboil, polybench, pytorch, or virtual."
        ),
    ] = None,
    gpus: Annotated[
        list[str] | None,
        typer.Option(
            "--gpus",
            metavar="NAMES",
            help="The GPUs to measure on, separated by commas; default: those of this machine.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a commented, valid campaign file.

    With --command or --suite it runs as it is; without them it is a template to fill in.
    campaign.schema.json, written next to it, lets editors complete and check it."""
    is_folder = path.is_dir() or (not path.suffix and not path.exists())
    campaign_file = path / "campaign.yaml" if is_folder else path
    campaign = _campaign(command or [], suite, gpus or [], campaign_file)
    schema_file = campaign_file.with_name(SCHEMA_FILE)
    files = {
        schema_file: json_text(campaign_schema()),
        **{campaign_file.parent / name: text for name, text in campaign.files.items()},
    }
    if not force:
        _refuse_to_replace(campaign_file, files)
    for file, text in files.items():
        write_atomically(file, text)
    write_atomically(campaign_file, campaign.text)
    findings = check_campaign(campaign_file) if command or suite else None
    document: dict[str, Any] = {"campaign_file": campaign_file, "schema_file": schema_file}
    warnings = findings.to_documents() if findings is not None else []
    if campaign.gpus:
        document |= {"synthetic": campaign.synthetic, "gpus": campaign.gpus, "warnings": warnings}
    show(document, as_json, lambda console: _render(campaign_file, files, warnings, console))


def _campaign(commands: list[str], suite: str | None, gpus: list[str], file: Path) -> NewCampaign:
    """What is to be written; raises ParameterError for options that do not go together."""
    if commands and suite is not None:
        raise ParameterError("--suite", "a suite has its own commands", "leave out --command, or --suite")
    if commands:
        return campaign_of_commands(commands, gpus, file)
    if suite is not None:
        return campaign_of_suite(suite, gpus)
    if gpus:
        raise ParameterError(
            "--gpus", "there is nothing to measure on them", "name it: --command 'python train.py'"
        )
    return NewCampaign(CAMPAIGN_TEMPLATE)


def _render(
    campaign_file: Path, files: Iterable[Path], warnings: Sequence[Mapping[str, Any]], console: Console
) -> None:
    text = "".join(f"written to {file}\n" for file in (campaign_file, *files))
    text += f"next: assay plan {shlex.quote(str(campaign_file))}"
    console.print(text, soft_wrap=True)
    render_warnings(warnings, console)


def _refuse_to_replace(campaign_file: Path, files: Mapping[Path, str]) -> None:
    """Refuse to replace other files; identical ones that go with the campaign may stay."""
    for file in (campaign_file, *files):
        if file.is_symlink() or file.exists():
            if file in files and file.is_file() and file.read_bytes() == files[file].encode():
                continue
            raise StorageError(
                str(file), "it exists already", "name another file, or replace it with --force"
            )
