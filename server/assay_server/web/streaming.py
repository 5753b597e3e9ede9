"""Answers that last: server-sent events to a browser that may read slowly or go away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from assay_server.rpc.concurrency import ConcurrencyLimit


class EventStream(Response):
    """Sends events while a session holds.

    Args:
        events: what is sent.
        holds: asked before each event and each sign of life; False ends the stream.
        streams: how many there may be.
        patience_seconds: for the browser to take what was sent.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncIterator[bytes],
        holds: Callable[[], bool],
        streams: ConcurrencyLimit,
        patience_seconds: Callable[[], int],
    ) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events: Any = events
        self._holds = holds
        self._streams = streams
        self._patience_seconds = patience_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.entered() as begins:
            if not begins:
                await Response("too many pages are watched\n", 503)(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            gone = asyncio.ensure_future(_gone(receive))
            sending = asyncio.ensure_future(self._send(send))
            try:
                await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (gone, sending):
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError, TimeoutError, OSError):
                        await task

    async def _send(self, send: Send) -> None:
        async with aclosing(self._events) as events:
            async for event in events:
                over = not self._holds()
                body = b"event: over\ndata: {}\n\n" if over else event
                message = {"type": "http.response.body", "body": body, "more_body": True}
                await asyncio.wait_for(send(message), self._patience_seconds())
                if over:
                    break
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
