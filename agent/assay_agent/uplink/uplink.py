"""The uplink: sends durable segments to the server over one stream, and receives acknowledgements.

Several segments are in flight at a time. When the stream breaks, unacknowledged segments are sent again over
the next one, after a pause that grows, with jitter, while the server is away.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
from tenacity import Retrying, retry_if_exception_type, sleep_using_event, stop_when_event_set

from assay_agent.spool.attempt import SpooledAttempt
from assay_agent.spool.spool import Spool
from assay_agent.uplink.connection import PAUSES, Connection
from assay_agent.uplink.session import Identity
from assay_core.records.attempt import AttemptKey
from assay_core.records.failure import failure
from assay_core.records.upload import AnnouncedSegment, SegmentAnswer, upload_messages
from assay_core.records.wire import WireError
from assay_sampling.errors import StorageError
from assay_sampling.running.failures import FailureClass

_log = logging.getLogger(__name__)


class _StreamBrokenError(Exception):
    """A stream ended before any answer, so the next one should wait."""


@dataclass
class _Stream:
    """One stream to the server: the segments in flight, and how far each attempt has been sent."""

    call: Any = None
    line: object = None
    closed: bool = False
    answers: int = 0
    next_segment: dict[AttemptKey, int] = field(default_factory=dict)
    in_flight: dict[tuple[AttemptKey, int], tuple[int, float]] = field(default_factory=dict)
    in_flight_bytes: int = 0

    def sent(self, key: AttemptKey, segment: int, size: int) -> None:
        self.in_flight[key, segment] = (size, time.monotonic())
        self.in_flight_bytes += size

    def settled(self, key: AttemptKey, segment: int) -> float | None:
        """When the segment was sent; None if it is not in flight."""
        size, sent_at = self.in_flight.pop((key, segment), (0, None))
        self.in_flight_bytes -= size
        return sent_at


class Uplink:
    """Sends all attempts of a spool, from its start until :meth:`stop`.

    Args:
        identity: of this process, as it is registered.
        window_segments: segments in flight at a time, at most.
        window_bytes: their bytes, at most (one segment always may go).
        idle_seconds: a stream with nothing to send is closed after that long.
        answer_seconds: a stream whose oldest segment is unanswered for that long counts as broken.
        on_acknowledged: hears how long the server took to acknowledge a segment, in seconds.
    """

    def __init__(
        self,
        spool: Spool,
        connection: Connection,
        identity: Identity,
        *,
        window_segments: int = 16,
        window_bytes: int = 32 << 20,
        idle_seconds: float = 5.0,
        answer_seconds: float = 60.0,
        on_acknowledged: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._on_acknowledged = on_acknowledged
        self._spool = spool
        self._connection = connection
        self._identity = identity
        self._changed = spool.changed
        self._window_segments = window_segments
        self._window_bytes = window_bytes
        self._idle_seconds = idle_seconds
        self._answer_seconds = answer_seconds
        self._stopped = threading.Event()
        self._stream = _Stream(closed=True)
        self._thread = threading.Thread(target=self._run, name="assay-uplink", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Close the stream and end; what is not acknowledged stays in the spool."""
        self._stopped.set()
        with self._changed:
            self._close(self._stream)
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def watch(self) -> None:
        """Break the stream if the server has stopped answering; call it regularly."""
        with self._changed:
            sent = min((at for _, at in self._stream.in_flight.values()), default=None)
            if sent is not None and time.monotonic() - sent > self._answer_seconds:
                _log.warning("the server acknowledges nothing; the stream is opened again")
                self._close(self._stream)

    def _close(self, stream: _Stream) -> None:
        stream.closed = True
        if stream.call is not None:
            stream.call.cancel()

    def _run(self) -> None:
        repeated = Retrying(
            retry=retry_if_exception_type(_StreamBrokenError),
            wait=PAUSES,
            stop=stop_when_event_set(self._stopped),
            sleep=sleep_using_event(self._stopped),
            retry_error_callback=lambda state: None,
        )
        while not self._stopped.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._stopped.is_set() or self._pending(_Stream()) is not None)
            repeated(self._send_stream)

    def _send_stream(self) -> None:
        """Send until nothing is left, or the stream breaks; _StreamBrokenError if it was useless."""
        if self._stopped.is_set():
            return
        stream = _Stream()
        with self._changed:
            self._stream = stream
        cause = "the server ended the stream"
        try:
            stream.line = self._connection.line
            with self._connection.upload(self._requests(stream)) as stream.call:
                for response in stream.call:
                    self._receive(stream, response)
        except grpc.RpcError as error:
            cause = str(self._connection.error_of(error))
        finally:
            with self._changed:
                broken = not stream.closed
                stream.closed = True
                self._changed.notify_all()
        if broken and not self._stopped.is_set():
            _log.info("sending is interrupted: %s", cause)
            if not stream.answers:
                raise _StreamBrokenError

    def _requests(self, stream: _Stream) -> Iterator[Any]:
        while (head := self._take(stream)) is not None:
            attempt, number = head
            try:
                segment = attempt.read(number)
            except StorageError as error:
                # A removed attempt's segments are gone too; ending it again does nothing.
                attempt.end(failure(FailureClass.SPOOL_DAMAGED, error.subject, error.cause, error.remedy))
                with self._changed:
                    stream.settled(attempt.key, number)
                continue
            claim = self._identity.claim(attempt.key, attempt.write_secret)
            announced = AnnouncedSegment(claim, segment.header)
            yield from upload_messages(announced, segment.names, segment.launches)

    def _take(self, stream: _Stream) -> tuple[SpooledAttempt, int] | None:
        """Wait for the next segment to send; None if the stream must be closed."""
        with self._changed:
            idle_until = time.monotonic() + self._idle_seconds
            while not stream.closed:
                # The certificate was renewed: what was sent is acknowledged here, the rest goes over the new
                # channel.
                replaced = stream.line is not self._connection.line
                if replaced and not stream.in_flight:
                    stream.closed = True
                    return None
                head = self._pending(stream) if self._has_room(stream) and not replaced else None
                if head is not None:
                    attempt, number = head
                    stream.next_segment[attempt.key] = number + 1
                    stream.sent(attempt.key, number, attempt.size_of(number))
                    return head
                rest = idle_until - time.monotonic()
                if stream.in_flight:
                    self._changed.wait()
                    idle_until = time.monotonic() + self._idle_seconds
                elif rest > 0:
                    self._changed.wait(rest)
                else:
                    stream.closed = True
        return None

    def _has_room(self, stream: _Stream) -> bool:
        return not stream.in_flight or (
            len(stream.in_flight) < self._window_segments and stream.in_flight_bytes < self._window_bytes
        )

    def _pending(self, stream: _Stream) -> tuple[SpooledAttempt, int] | None:
        """The next segment of the attempt that has sent least, so that no attempt starves."""
        waiting = [
            (start, attempt, number)
            for attempt in self._spool.attempts.values()
            for start in [stream.next_segment.get(attempt.key, 0)]
            for number in [attempt.next_pending(start)]
            if number is not None
        ]
        if not waiting:
            return None
        _, attempt, number = min(waiting, key=lambda entry: entry[0])
        return attempt, number

    def _receive(self, stream: _Stream, response: Any) -> None:
        try:
            answer = SegmentAnswer.from_proto(response)
        except WireError as error:
            _log.warning("an answer of the server is ignored: %s", error)
            return
        with self._changed:
            stream.answers += 1
            sent_at = stream.settled(answer.key, answer.index)
            attempt = self._spool.attempts.get(answer.key)
            if attempt is None:
                self._changed.notify_all()
            elif answer.refusal is None:
                attempt.acknowledge(answer.index)
                if sent_at is not None:
                    self._on_acknowledged(time.monotonic() - sent_at)
            else:
                # The server has ended the attempt itself, so there is nothing to report to it.
                _log.warning("%s is refused: %s", answer.key, answer.refusal.cause)
                attempt.end(None)
