"""Every changing call leaves an entry in the audit log, also one that is refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc

from assay_server.access.audit import DONE, AuditLog, Note, begin_note, forget_note
from assay_server.access.table import rule_of
from assay_server.rpc.wrapping import Context, ServedCall, Surrounding


class Auditing(Surrounding):
    """Stands before the guard, so that it hears of refusals too."""

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    def concerns(self, call: ServedCall) -> bool:
        rule = rule_of(call.method)
        return rule is None or rule.audited

    @contextlib.asynccontextmanager
    async def around(self, call: ServedCall, context: Context) -> AsyncIterator[None]:
        note = begin_note(call.name, str(context.peer()))
        try:
            yield
        except BaseException:
            forget_note()
            await self._end(note, _outcome(context), context.details() or "")
            raise
        forget_note()
        await self._end(note, DONE, "")

    async def _end(self, note: Note, outcome: str, detail: str) -> None:
        if note.written:
            return
        details = detail if isinstance(detail, str) else detail.decode(errors="replace")
        # The call may have been cancelled; its entry is written nevertheless.
        # It is handed to its thread at once: a task for it would be cancelled when the server ends.
        end = asyncio.get_running_loop().run_in_executor(None, self._log.end, note, outcome, details)
        await asyncio.shield(end)


def _outcome(context: Context) -> str:
    """The status that the call was aborted with, in small letters; "cancelled" if it just went away."""
    code: Any = context.code()
    number = code.value[0] if isinstance(code, grpc.StatusCode) else code
    found = next((each for each in grpc.StatusCode if each.value[0] == number), grpc.StatusCode.CANCELLED)
    return "cancelled" if found is grpc.StatusCode.OK else found.name.lower()
