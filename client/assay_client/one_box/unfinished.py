"""Runs of ``assay run`` that were interrupted: which campaign goes on when a file or command is run again.

A note is durable before its campaign is submitted, and the server makes one campaign of all submissions with
its key. So whenever the process is killed, the next run finds the campaign, or submits it for the first time.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from assay_client.files import write_atomically
from assay_client.one_box.basis import Basis, text_hash
from assay_client.remote.client import Client
from assay_core.records.campaign import CampaignState
from assay_sampling.errors import AssayError

Say = Callable[[str], None]


@dataclass(frozen=True)
class Source:
    """What is run: the text of a campaign, and the path that its relative paths begin beside.

    ``identity`` tells sources apart: a file by its path, a command by its words and its folder.
    """

    text: str
    path: Path
    identity: str


@dataclass(frozen=True)
class Note:
    """A campaign that ``assay run`` began. ``campaign_id`` is "" until the server has answered."""

    identity: str
    key: str
    basis: Basis
    campaign_id: str = ""
    ended: bool = False


class Notes:
    """The notes in a folder: a file for each source, whose last run it describes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, identity: str) -> Note | None:
        """The last run of a source; None without a readable note."""
        return _read(self._path(identity))

    def unfinished(self) -> Iterator[Note]:
        """The notes of runs that have not ended."""
        for path in sorted(self._folder.glob("*.json")):
            note = _read(path)
            if note is not None and not note.ended:
                yield note

    def keep(self, note: Note) -> None:
        """Write a note durably; raises StorageError."""
        document = {
            "identity": note.identity,
            "key": note.key,
            "campaign_id": note.campaign_id,
            "ended": note.ended,
            "basis": note.basis.to_dict(),
        }
        write_atomically(self._path(note.identity), json.dumps(document, indent=1), private=True)

    def _path(self, identity: str) -> Path:
        return self._folder / f"{text_hash(identity)[:32]}.json"


def _read(path: Path) -> Note | None:
    try:
        document = json.loads(path.read_text("utf-8"))
        basis = Basis.from_dict(document["basis"])
        return Note(
            str(document["identity"]),
            str(document["key"]),
            basis,
            str(document["campaign_id"]),
            bool(document["ended"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def begin(client: Client, notes: Notes, source: Source, basis: Basis, *, anew: bool, say: Say) -> Note:
    """Submit a source's campaign, or let its unfinished one go on; other unfinished ones are held.

    Args:
        client: of a server with nobody who measures yet.
        notes: of its state folder.
        source: what is run.
        basis: what it rests on now.
        anew: cancel an unfinished run and begin again.
        say: gets a sentence about an earlier run of the source.

    Raises CampaignError as ``Client.submit``, StorageError.
    """
    earlier = notes.of(source.identity)
    taken_up = None if earlier is None else _taken_up(client, earlier, basis, anew, say)
    note = taken_up or Note(source.identity, secrets.token_hex(16), basis)
    notes.keep(note)  # before the server hears of it
    campaign_id = str(client.submit_text(source.text, source.path, note.key)["campaign_id"])
    if taken_up is not None:
        _go_on(client, campaign_id, say)
    note = replace(note, campaign_id=campaign_id)
    notes.keep(note)
    for other in notes.unfinished():
        if other.campaign_id and other.campaign_id != campaign_id:
            with contextlib.suppress(AssayError):  # nothing of it can be held: it has ended
                client.pause(other.campaign_id)
    return note


def _taken_up(client: Client, earlier: Note, basis: Basis, anew: bool, say: Say) -> Note | None:
    """The earlier run if it can go on; None after saying why it begins anew."""
    name = earlier.campaign_id or "the last run"
    if earlier.ended:
        say(f"{name} is finished: this run starts over")
        return None
    changes = earlier.basis.changes(basis)
    if not anew and not changes:
        return earlier
    say(f"{name} is not finished, and this run starts over: {'--new asks for it' if anew else changes}")
    if earlier.campaign_id:
        with contextlib.suppress(AssayError):  # it has ended, or its records were removed
            client.cancel(earlier.campaign_id)
    return None


def _go_on(client: Client, campaign_id: str, say: Say) -> None:
    """Let a campaign go on that was held for another one, or cancelled because its box could not go on."""
    status = client.summary(campaign_id)
    progress = f"{status['runs_done']} of {status['runs_total']} runs are done"
    say(f"{campaign_id} continues where it was interrupted: {progress} (--new starts over)")
    if status["state"] == CampaignState.CANCELLED:
        client.retry(campaign_id)
    elif status["paused"] or status["runs_paused"]:
        client.resume(campaign_id)
