"""``assay init [PATH]``: a commented campaign file to start from, and its JSON schema for editors."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from assay_client.campaign_template import CAMPAIGN_TEMPLATE, SCHEMA_FILE
from assay_client.cli.options import JsonOption
from assay_client.cli.output import json_text, show
from assay_client.cli.verb import verb_app
from assay_client.files import write_atomically
from assay_client.local import campaign_schema
from assay_sampling.errors import StorageError

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
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a commented campaign file, valid as it stands.

    Next to it goes campaign.schema.json, with which editors complete and check it.
    """
    is_folder = path.is_dir() or (not path.suffix and not path.exists())
    campaign_file = path / "campaign.yaml" if is_folder else path
    schema_file = campaign_file.with_name(SCHEMA_FILE)
    schema = json_text(campaign_schema())
    if not force:
        _refuse_to_replace(campaign_file, schema_file, schema)
    write_atomically(schema_file, schema)
    write_atomically(campaign_file, CAMPAIGN_TEMPLATE)
    document = {"campaign_file": campaign_file, "schema_file": schema_file}
    text = f"written to {campaign_file}\nwritten to {schema_file}"
    text += f"\nnext: assay plan {shlex.quote(str(campaign_file))}"
    show(document, as_json, lambda console: console.print(text, soft_wrap=True))


def _refuse_to_replace(campaign_file: Path, schema_file: Path, schema: str) -> None:
    """Refuse to replace other files; an identical schema may stay."""
    for file in (campaign_file, schema_file):
        if file.is_symlink() or file.exists():
            if file == schema_file and file.is_file() and file.read_bytes() == schema.encode():
                continue
            raise StorageError(
                str(file), "it exists already", "name another file, or replace it with --force"
            )
