"""Calls that last: their caller is checked again when identities change, and every few seconds.

So a revocation and the end of a certificate end them, too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

RECHECK_SECONDS = 20.0

_END = object()


@dataclass(eq=False)
class _LastingCall:
    """A call under way; ``changed`` is done when its caller's identity has changed since the last check."""

    identity_id: str
    recheck: Callable[[], Awaitable[None]]
    changed: asyncio.Future[None]
    checked: float  # by the loop's clock


class LastingCalls:
    """The lasting calls of a server. Make it on the server's event loop; any thread may call ``changed``."""

    def __init__(self, recheck_seconds: float = RECHECK_SECONDS) -> None:
        self._recheck_seconds = recheck_seconds
        self._loop = asyncio.get_running_loop()
        self._calls: set[_LastingCall] = set()

    def changed(self, identities: frozenset[str]) -> None:
        """These identities are not as they were."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._wake, identities)

    async def while_allowed(
        self, stream: AsyncGenerator[Any], identity_id: str, recheck: Callable[[], Awaitable[None]]
    ) -> AsyncGenerator[Any]:
        """The answers of a call of somebody, until ``recheck`` raises that they may no longer make it."""
        lasting = _LastingCall(identity_id, recheck, self._loop.create_future(), self._loop.time())
        self._calls.add(lasting)
        try:
            while (answer := await self._next(stream, lasting)) is not _END:
                yield answer
        finally:
            self._calls.discard(lasting)

    async def _next(self, stream: AsyncGenerator[Any], lasting: _LastingCall) -> Any:
        step: asyncio.Future[Any] = asyncio.ensure_future(anext(stream, _END))
        try:
            while not step.done():
                either = {step, lasting.changed}
                await asyncio.wait(either, timeout=self._recheck_seconds, return_when=asyncio.FIRST_COMPLETED)
                late = self._loop.time() - lasting.checked >= self._recheck_seconds
                if lasting.changed.done() or late:
                    lasting.changed, lasting.checked = self._loop.create_future(), self._loop.time()
                    await lasting.recheck()
            return await step
        finally:
            if not step.done():
                step.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await step
            elif not step.cancelled():
                step.exception()  # if the call ended meanwhile, the step saw that as an error of its own

    def _wake(self, identities: frozenset[str]) -> None:
        for lasting in self._calls:
            if lasting.identity_id in identities and not lasting.changed.done():
                lasting.changed.set_result(None)
