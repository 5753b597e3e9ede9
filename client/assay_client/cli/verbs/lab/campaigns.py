"""``assay lab campaigns``: delete, archive, export and import campaigns that have ended."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from assay_client.cli.options import JsonOption, ServerOption
from assay_client.cli.output import show
from assay_client.cli.reporters.text import counted, size
from assay_client.cli.verb import verb_app
from assay_client.remote.archives import archive_to, export_to, import_from
from assay_client.remote.connection import Connection
from assay_sampling.visible import visible

app = verb_app()

CampaignArgument = Annotated[str, typer.Argument(metavar="ID", help="A campaign's id.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Confirm that the campaign is deleted for good.")]
FileOption = Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="A new file (.tar).")]


@app.callback()
def campaigns() -> None:
    """Delete, archive, export and import campaigns that have ended."""


@app.command()
def delete(
    campaign_id: CampaignArgument,
    *,
    yes: YesOption = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete an ended campaign with its records and report."""
    with Connection(server) as connection:
        deleted = connection.delete(campaign_id, confirmed=yes)
    message = f"{campaign_id} is deleted: {_what(deleted.runs, deleted.files, deleted.bytes)}"
    show(asdict(deleted), as_json, lambda console: console.print(message))


@app.command()
def archive(
    campaign_id: CampaignArgument,
    *,
    output: FileOption,
    yes: YesOption = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export an ended campaign, check the file, then delete it here."""
    with Connection(server) as connection:
        deleted = archive_to(
            connection,
            campaign_id,
            output,
            confirmed=yes,
            tell=lambda line: typer.echo(visible(line), err=True),
        )
    message = f"{campaign_id} is in {output}: {_what(deleted.runs, deleted.files, deleted.bytes)}"
    document = {**asdict(deleted), "file": str(output)}
    show(document, as_json, lambda console: console.print(message))


@app.command()
def export(
    campaign_id: CampaignArgument,
    *,
    output: FileOption,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write an ended campaign to a file for another server."""
    with Connection(server) as connection:
        document = export_to(connection, campaign_id, output)
    message = f"{campaign_id} is in {output} ({size(document['bytes'])})"
    show(document, as_json, lambda console: console.print(message))


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that export or archive wrote.")],
    *,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import a campaign from a file, with the same report."""
    with Connection(server) as connection:
        campaign = import_from(connection, file)
    message = f"{campaign.campaign_id} is imported: {_what(campaign.runs, campaign.files, campaign.bytes)}"
    show(asdict(campaign), as_json, lambda console: console.print(message))


def _what(runs: int, files: int, bytes_: int) -> str:
    return f"{counted(runs, 'run', 'runs')}, {counted(files, 'file', 'files')}, {size(bytes_)}"
