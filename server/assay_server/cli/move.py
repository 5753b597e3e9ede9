"""``assay-server move``: takes a stopped server's metadata to another database, and back."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from assay_core.settings.command_line import with_settings
from assay_sampling.errors import ParameterError
from assay_server.cli.extras import server_extra
from assay_server.config import ServerSettings

_SQLITE = "sqlite"
_EVERY_SECONDS = 2.0


@with_settings(ServerSettings, "state_dir", "database", "database_file")
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
            metavar="FILE", help="Private file with the URL, also with its password; instead of --to."
        ),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Move a stopped server's metadata to PostgreSQL, or back; every row is checked.

    Records and reports stay where they are. Interrupted at any moment, the old database is still in force."""
    with server_extra():
        from assay_server.database.moving import move_to_postgresql, move_to_sqlite  # noqa: PLC0415
        from assay_server.database.opening import asked_database  # noqa: PLC0415

    state = settings.state_dir.absolute()
    if bool(to) == (to_file is not None):
        raise ParameterError(
            "--to", "it must name one database", "give --to URL, --to sqlite, or --to-file FILE"
        )
    with _told() as told:
        if to == _SQLITE:
            moved = move_to_sqlite(state, asked_database(settings.database, settings.database_file), told)
        else:
            moved = move_to_postgresql(state, asked_database(to, to_file), told)
    kept = None if moved.kept is None else str(moved.kept)
    if json_output:
        typer.echo(json.dumps({"state": str(state), "rows": moved.rows, "to": moved.to, "kept": kept}))
        return
    typer.echo(f"{moved.rows:,} rows moved to {moved.to}, each as it was")
    if kept is not None:
        typer.echo(f"the old database is kept as {kept}; remove it when you no longer want it")


@contextlib.contextmanager
def _told() -> Iterator[Callable[[str, int], None]]:
    """Tells people at a terminal from time to time which table is being copied."""
    shown_at = time.monotonic()

    def told(table: str, rows: int) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= _EVERY_SECONDS and sys.stderr.isatty():
            shown_at = time.monotonic()
            sys.stderr.write(f"{table}: {rows:,} rows copied\n")

    yield told
