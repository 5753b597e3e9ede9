"""``assay-server backup``, ``restore``, ``check`` and ``move``: a state folder kept right for weeks."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from assay_core.settings.command_line import with_settings
from assay_sampling.errors import ParameterError, StorageError
from assay_server.cli.output import JsonOption, progress_shown, server_extra, show
from assay_server.clock import wall_ms
from assay_server.config import ServerSettings

PassphraseOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Its first line encrypts the certificate authority's key."),
]
WithoutAuthorityOption = Annotated[
    bool, typer.Option("--without-authority", help="Leave the certificate authority out.")
]
# So many findings are printed; --json has all.
_MOST_PRINTED = 50
_SQLITE, _FOLDER = "sqlite", "folder"


@with_settings(ServerSettings, "state_dir", "database", "database_file")
def backup(
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A new folder, or a new file NAME.tar.")],
    *,
    settings: ServerSettings,
    passphrase_file: PassphraseOption = None,
    without_authority: WithoutAuthorityOption = False,
    copy: Annotated[
        bool,
        typer.Option("--copy", help="Copy published files even on the same disk, instead of hard links."),
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Back up a state folder, also while its server runs."""
    from assay_server.database.opening import asked_database  # noqa: PLC0415 - serving needs none of this
    from assay_server.maintenance.authority_key import read_passphrase  # noqa: PLC0415
    from assay_server.maintenance.backup import make_backup  # noqa: PLC0415
    from assay_server.maintenance.backup_log import Done, Task, note_done  # noqa: PLC0415

    made = make_backup(
        settings.state_dir.absolute(),
        target.absolute(),
        passphrase=None if passphrase_file is None else read_passphrase(passphrase_file),
        without_authority=without_authority,
        link=not copy,
        asked=asked_database(settings.database, settings.database_file),
    )
    manifest = made.manifest
    done = Done(ended_at_ms=wall_ms(), faults=len(manifest.faults))
    note_done(settings.state_dir.absolute(), Task.BACKUP, done)
    document = {
        "backup": str(target.absolute()),
        "campaigns": manifest.campaigns,
        "files": len(manifest.files),
        "bytes": manifest.total_bytes,
        "linked": made.linked,
        "authority": manifest.authority,
        "faults": [fault.model_dump() for fault in manifest.faults],
    }
    text = f"{document['campaigns']:,} campaigns, {document['files']:,} files "
    show(document, f"{text}({document['bytes']:,} bytes) in {target}", as_json=json_output)
    if manifest.faults:
        first = manifest.faults[0]
        raise StorageError(
            first.name,
            f"{first.cause}; the backup lacks it and {len(manifest.faults) - 1:,} more files",
            "look at the state folder with: assay-server check --state DIR",
        )


@with_settings(ServerSettings, "state_dir")
def restore(
    source: Annotated[Path, typer.Argument(metavar="BACKUP", help="A folder or file that 'backup' wrote.")],
    *,
    settings: ServerSettings,
    passphrase_file: PassphraseOption = None,
    without_authority: WithoutAuthorityOption = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Rename an existing state folder, adding the time to its name.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Create a state folder from a backup; every file is checked first. Refused while a server uses it."""
    from assay_server.maintenance.authority_key import read_passphrase  # noqa: PLC0415
    from assay_server.maintenance.restore import restore_backup  # noqa: PLC0415

    restored = restore_backup(
        source.absolute(),
        settings.state_dir.absolute(),
        passphrase=None if passphrase_file is None else read_passphrase(passphrase_file),
        without_authority=without_authority,
        replace=replace,
    )
    document = {
        "state": str(settings.state_dir.absolute()),
        "campaigns": restored.manifest.campaigns,
        "files": len(restored.manifest.files),
        "made_at_ms": restored.manifest.made_at_ms,
        "authority": restored.manifest.authority and not without_authority,
        "replaced": None if restored.replaced is None else str(restored.replaced),
        "revocations": restored.revocations,
    }
    text = f"{document['campaigns']:,} campaigns restored into {document['state']}"
    if restored.replaced is not None:
        text += f"; the previous state is in  {restored.replaced}"
    if document["authority"]:
        text += f"\n{_revoked_again(restored.revocations)}"
    show(document, text, as_json=json_output)


def _revoked_again(revocations: int | None) -> str:
    if revocations is None:
        return (
            "what was revoked since the backup was made is valid again, and tokens used since can be used "
            "again: revoke them once more"
        )
    return f"{revocations:,} identities, certificates and tokens stay revoked, as in the replaced folder"


@with_settings(ServerSettings, "state_dir", "database", "database_file")
def check(*, settings: ServerSettings, json_output: JsonOption = False) -> None:
    """Compare every published file with its hash, and every record with its rules. Changes nothing."""
    from assay_server.database.opening import asked_database  # noqa: PLC0415
    from assay_server.maintenance.backup_log import Done, Task, note_done  # noqa: PLC0415
    from assay_server.maintenance.check import check_state  # noqa: PLC0415

    state = settings.state_dir.absolute()
    with progress_shown() as show_progress:
        database = asked_database(settings.database, settings.database_file)
        looked_at = partial(show_progress, "runs looked at")
        checked = check_state(state, looked_at, database)
    note_done(state, Task.CHECK, Done(ended_at_ms=wall_ms(), faults=len(checked.findings)))
    findings = [{**asdict(each), "remedy": each.kind.remedy} for each in checked.findings]
    document = {**asdict(checked), "state": str(state), "findings": findings}
    text = f"{checked.campaigns:,} campaigns, {checked.runs:,} runs, {checked.files:,} files looked at"
    text += "" if findings else "; nothing is missing or damaged"
    lines = [f"{each['subject']}: {each['cause']} [{each['kind']}]" for each in findings[:_MOST_PRINTED]]
    show(document, "\n".join([*lines, text]), as_json=json_output)
    if findings:
        first = findings[0]
        more = f"; {len(findings) - 1:,} more findings" if len(findings) > 1 else ""
        raise StorageError(str(first["subject"]), f"{first['cause']}{more}", str(first["remedy"]))


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
