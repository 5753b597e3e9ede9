"""``assay-server move``: takes a stopped server's metadata or records to another place, and back."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from assay_core.settings.command_line import with_settings
from assay_sampling.errors import ParameterError
from assay_server.cli.output import JsonOption, progress_shown, server_extra, show
from assay_server.config import ServerSettings

_SQLITE, _FOLDER = "sqlite", "folder"


@with_settings(
    ServerSettings, "state_dir", "database", "database_file", "records_endpoint", "records_credentials"
)
def move(
    *,
    settings: ServerSettings,
    to: Annotated[
        str,
        typer.Option(metavar="URL", help="postgresql://USER@HOST:PORT/NAME, an empty database; or sqlite."),
    ] = "",
    to_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Private file with the URL, which may contain a password; instead of --to."
        ),
    ] = None,
    records_to: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="s3://BUCKET/PREFIX for the records, the path of a shared folder, or folder.",
        ),
    ] = "",
    json_output: JsonOption = False,
) -> None:
    """Move a stopped server's metadata to PostgreSQL, or its records to a bucket or folder, or back.

    Every row and file is checked. If it is interrupted, the old place stays in use."""
    with server_extra():
        from assay_server.database.moving import move_to_postgresql, move_to_sqlite  # noqa: PLC0415
        from assay_server.database.opening import asked_database  # noqa: PLC0415

    state = settings.state_dir.absolute()
    if records_to and not to and to_file is None:
        _move_records(settings, state, records_to, json_output=json_output)
        return
    if records_to:
        raise ParameterError("--records-to", "--to is given too", "move the metadata and the records in turn")
    if bool(to) == (to_file is not None):
        raise ParameterError(
            "--to", "it must name one database", "give --to URL, --to sqlite, or --to-file FILE"
        )
    with progress_shown() as progress:
        if to == _SQLITE:
            moved = move_to_sqlite(state, asked_database(settings.database, settings.database_file), progress)
        else:
            moved = move_to_postgresql(state, asked_database(to, to_file), progress)
    old_database = None if moved.kept is None else str(moved.kept)
    text = f"{moved.rows:,} rows moved to {moved.to}, each as it was"
    if old_database is not None:
        text += f"\nthe old database is kept as {old_database}; remove it when you no longer want it"
    document = {"state": str(state), "rows": moved.rows, "to": moved.to, "kept": old_database}
    show(document, text, as_json=json_output)


def _move_records(settings: ServerSettings, state: Path, to: str, *, json_output: bool) -> None:
    from assay_server.database.opening import asked_database  # noqa: PLC0415
    from assay_server.places import bucket_and_prefix, records_place  # noqa: PLC0415
    from assay_server.records.moving import move_to_folder, move_to_place  # noqa: PLC0415

    database = asked_database(settings.database, settings.database_file)
    with progress_shown() as progress:
        if to == _FOLDER:
            moved = move_to_folder(state, database, progress)
        elif Path(to).is_absolute():
            moved = move_to_place(state, records_place(to), database, progress)
        else:
            bucket_and_prefix(to, "--records-to")
            place = records_place(to, settings.records_endpoint, settings.records_credentials)
            moved = move_to_place(state, place, database, progress)
    text = (
        f"{moved.files:,} files, {moved.segments:,} segments and {moved.reports:,} reports moved to "
        f"{moved.to}, each as it was; the old ones are still in {moved.kept}"
    )
    show({"state": str(state), **asdict(moved)}, text, as_json=json_output)
