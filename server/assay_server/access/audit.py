"""The record of who did what: one entry for each changing call, written with the change itself.

While a call is answered, its entry is in a context variable. The first transaction that the call commits
writes it (:class:`AuditedStore`), so a change is never durable without its entry. A call that changed
nothing, because it was refused or failed, gets its entry afterwards, in a transaction of its own.

What agents do to attempts is not here but in the attempts: agent, session, slot, times and outcome.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from assay_core.records.lab import AuditEntry
from assay_sampling.errors import StorageError
from assay_server.access.caller import Caller
from assay_server.clock import wall_ms
from assay_server.limits import REFUSALS_AUDITED_PER_MINUTE
from assay_server.store.sql import MetadataStore, SqlTransaction

_log = logging.getLogger(__name__)

DONE = "done"
_LONGEST_TEXT = 300
_DAY_MS = 86_400_000
# Fields of requests that say what a call is about, in the order in which people read them.
_SUBJECTS = (
    "campaign_id",
    "workload",
    "run_id",
    "identity",
    "identity_id",
    "subject",
    "agent_id",
    "name",
    "role",
)


@dataclass
class Note:
    """The entry of the call that is being answered, as far as it is known."""

    call: str
    address: str
    caller: Caller | None = None
    subject: str = ""
    detail: str = ""
    written: bool = False
    silent: bool = False  # leaves no entry if it succeeds
    kept_back: bool = False  # what is written now is not yet the change

    def entry(self, outcome: str, detail: str = "") -> AuditEntry:
        caller = self.caller
        who = dict.fromkeys(("identity_id", "name", "role", "how"), "")
        if caller is not None:
            who = {name: str(getattr(caller, name)) for name in who}
        return AuditEntry(
            entry_id=0,
            at_ms=wall_ms(),
            **who,
            address=self.address[:_LONGEST_TEXT],
            call=self.call,
            subject=self.subject[:_LONGEST_TEXT],
            outcome=outcome,
            detail=(detail or self.detail)[:_LONGEST_TEXT],
        )


_NOTE: ContextVar[Note | None] = ContextVar("assay_audit_note", default=None)


def begin_note(call: str, address: str) -> Note:
    """Begin the entry of a call, for this task and the threads that it asks."""
    note = Note(call, address)
    _NOTE.set(note)
    return note


def forget_note() -> None:
    """The call has ended: what this task does next is the server's own work."""
    _NOTE.set(None)


def note_caller(caller: Caller) -> None:
    """The guard knows who calls."""
    if (note := _NOTE.get()) is not None:
        note.caller = caller


def note_subject(subject: str, detail: str = "") -> None:
    """Say what the call is about, or what came of it; before the transaction ends."""
    if (note := _NOTE.get()) is not None:
        note.subject, note.detail = subject or note.subject, detail or note.detail


def note_request(message: Any) -> None:
    """Take from a request what it is about."""
    if _NOTE.get() is None:
        return
    texts = {name: getattr(message, name, "") for name in _SUBJECTS}
    subjects = [
        f"{name.removesuffix('_id')} {value[:100]}"
        for name, value in texts.items()
        if isinstance(value, str) and value
    ]
    if subjects:
        note_subject(", ".join(subjects))


def note_nothing_new() -> None:
    """The call leaves all as it was, and no entry if it succeeds; say so before its transaction ends."""
    if (note := _NOTE.get()) is not None:
        note.silent = True


@contextmanager
def note_kept_back() -> Iterator[None]:
    """The transactions of this block prepare the call's change, which a later one makes."""
    note = _NOTE.get() or Note("", "")
    note.kept_back = True
    try:
        yield
    finally:
        note.kept_back = False


class AuditedStore:
    """The ``MetadataStore`` that it is given; a call's first transaction writes the call's entry."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def snapshot(self) -> AbstractContextManager[SqlTransaction]:
        return self._store.snapshot()

    @contextmanager
    def transaction(self) -> Iterator[SqlTransaction]:
        note = _NOTE.get()
        open_note = None if note is None or note.written or note.kept_back else note
        with self._store.transaction() as transaction:
            yield transaction
            if open_note is not None and not open_note.silent:
                transaction.add_audit(open_note.entry(DONE))
        if open_note is not None and not open_note.silent:
            open_note.written = True

    def close(self) -> None:
        self._store.close()


class PerMinute:
    """Lets so many of something pass in a minute, and counts the others. Thread-safe."""

    def __init__(self, most: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most, self._monotonic = most, monotonic
        self._lock = threading.Lock()
        self._minute, self._passed, self._left_out = float("-inf"), 0, 0

    def admit(self) -> int | None:
        """How many were left out since the last that passed; None: this one is left out, too."""
        with self._lock:
            now = self._monotonic()
            if now - self._minute >= 60:
                self._minute, self._passed = now, 0
            if self._passed >= self._most:
                self._left_out += 1
                return None
            self._passed += 1
            left_out, self._left_out = self._left_out, 0
            return left_out


class AuditLog:
    """Writes the entries of calls that changed nothing, and forgets old entries. Thread-safe.

    Args:
        store: where entries are kept.
        days: how long.
        most_per_minute: entries of refused calls in a minute, of callers with an identity and of strangers
            each; more are counted, so nobody fills the disk, and strangers hide no refusal of a member.
    """

    def __init__(
        self,
        store: MetadataStore,
        days: int,
        most_per_minute: int = REFUSALS_AUDITED_PER_MINUTE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._days = store, days
        # By whether the caller has an identity.
        self._refusals = {has_one: PerMinute(most_per_minute, monotonic) for has_one in (True, False)}

    def end(self, note: Note, outcome: str, detail: str) -> None:
        """Write the entry of a call that wrote none itself; never raises."""
        if note.written or (note.silent and outcome == DONE):
            return
        more = 0 if outcome == DONE else self._refusals[note.caller is not None].admit()
        if more is None:
            return
        omitted = f" ({more:,} refused calls before it are not listed)" if more else ""
        try:
            with self._store.transaction() as transaction:
                transaction.add_audit(note.entry(outcome, detail[: _LONGEST_TEXT - len(omitted)] + omitted))
            note.written = True
        except StorageError as error:
            _log.warning("no entry in the audit log for %s by %s: %s", note.call, note.caller, error)

    def forget(self) -> None:
        """Remove entries that are older than the log is kept; call it now and then."""
        with self._store.transaction() as transaction:
            transaction.forget_audit(wall_ms() - self._days * _DAY_MS)
