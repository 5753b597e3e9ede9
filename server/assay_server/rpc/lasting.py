"""Calls that last: their caller is checked again when its identity changes, and every few seconds.

So a revocation and the end of a certificate end them, too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from assay_server.access.caller import Caller

RECHECK_SECONDS = 20.0

Result = TypeVar("Result")
Recheck = Callable[[Caller], Awaitable[None]]


@dataclass(eq=False)
class LastingCall:
    """A call under way; ``changed`` is done when its caller's identity has changed since the last check."""

    changed: asyncio.Future[None]
    checked: float  # by the loop's clock
    caller: Caller  # as the call began
    recheck: Recheck  # ends the call if the caller, given as it was when the call began, may not go on


class LastingCalls:
    """The lasting calls of a server. Make it on the server's event loop; any thread may call ``changed``."""

    def __init__(self, recheck_seconds: float = RECHECK_SECONDS) -> None:
        self._recheck_seconds = recheck_seconds
        self._loop = asyncio.get_running_loop()
        self._by_identity: dict[str, set[LastingCall]] = {}

    def changed(self, identities: frozenset[str]) -> None:
        """These identities are not as they were."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._wake, identities)

    @contextlib.contextmanager
    def watched(self, caller: Caller | None, recheck: Recheck) -> Iterator[LastingCall | None]:
        """A call that lasts as long as the block; None: nothing about its caller can change."""
        if caller is None or caller.is_owner:
            yield None
            return
        lasting = LastingCall(self._loop.create_future(), self._loop.time(), caller, recheck)
        mine = self._by_identity.setdefault(caller.identity_id, set())
        mine.add(lasting)
        try:
            yield lasting
        finally:
            mine.discard(lasting)
            if not mine:
                self._by_identity.pop(caller.identity_id, None)

    async def while_allowed(self, step: Awaitable[Result], lasting: LastingCall | None) -> Result:
        """The result of ``step``, unless its caller may no longer make this call."""
        if lasting is None:
            return await step
        task = asyncio.ensure_future(step)
        try:
            while not task.done():
                either: set[asyncio.Future[Any]] = {task, lasting.changed}
                await asyncio.wait(either, timeout=self._recheck_seconds, return_when=asyncio.FIRST_COMPLETED)
                late = self._loop.time() - lasting.checked >= self._recheck_seconds
                if lasting.changed.done() or late:
                    lasting.changed, lasting.checked = self._loop.create_future(), self._loop.time()
                    await lasting.recheck(lasting.caller)
            return await task
        finally:
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration, grpc.aio.AbortError):
                    await task
            elif not task.cancelled():
                task.exception()  # if the call ended meanwhile, the step saw that as an error of its own

    def _wake(self, identities: frozenset[str]) -> None:
        for identity_id in identities & self._by_identity.keys():
            for lasting in self._by_identity[identity_id]:
                if not lasting.changed.done():
                    lasting.changed.set_result(None)
