"""What is made of reports in processes of their own: figures for pages, and other forms for downloads.

So Vega and long reports, whose reading holds all threads of a process, hold up nobody here. Figures are kept
by the content of their report. Their process begins with the first one that somebody looks at, and ends when
nobody has looked at one for a while; that of other forms ends with its form, to give its memory back.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from assay_server.campaigns.analysing.executors import WorkerPool
from assay_server.campaigns.errors import NotYetError, UnknownThingError

if TYPE_CHECKING:
    from assay_report.figures.figure import Figure
    from assay_report.forms import Form

Drawn = TypeVar("Drawn")

_log = logging.getLogger(__name__)

_MOST_LISTS = 32
_MOST_PICTURE_BYTES = 32 << 20
_MOST_PICTURES_WAITING, _MOST_FORMS_WAITING = 64, 16
_PICTURE_SECONDS, _FORM_SECONDS = 30.0, 300.0
_IDLE_SECONDS = 600.0
_DESCRIBED_CHARACTERS = 600


@dataclass(frozen=True)
class Source:
    """A report: the campaign, what identifies the report's content, and its JSON or the file that has it."""

    campaign_id: str
    key: str
    report: Path | bytes


class Studio:
    """Lists and draws figures. Thread-safe.

    Args:
        make_executor: makes the process, and another one after it broke or was ended.
        listed: called with the campaign whose figures have been listed, so that its page is drawn again.
    """

    def __init__(self, make_executor: Callable[[], Executor], listed: Callable[[str], None]) -> None:
        self._make_executor = make_executor
        self._listed = listed
        self._lock = threading.Lock()
        self._executor: Executor | None = None
        self._ending: threading.Timer | None = None
        self._lists: OrderedDict[tuple[str, str], tuple[Figure, ...] | None] = OrderedDict()
        self._pictures: OrderedDict[tuple[str, str, str, bool], bytes] = OrderedDict()
        self._picture_bytes = 0
        self._waiting = 0
        self._closed = False

    def figures(self, source: Source) -> tuple[Figure, ...] | None:
        """The figures of a report, as of :func:`described`; None while they are being listed. Never waits."""
        key = (source.campaign_id, source.key)
        with self._lock:
            if key in self._lists:
                return self._lists[key]
            self._lists[key] = None
            while len(self._lists) > _MOST_LISTS:
                self._lists.popitem(last=False)
        try:
            self._submit(partial(described, source.report)).add_done_callback(partial(self._described, key))
        except RuntimeError:  # the server ends
            return None
        return None

    async def picture(self, source: Source, name: str, *, narrow: bool = False) -> bytes:
        """A figure as SVG, ``narrow`` for a phone.

        Raises UnknownThingError if the report has no such figure, NotYetError if too many are being drawn.
        """
        key = (source.campaign_id, source.key, name, narrow)
        with self._lock:
            if key in self._pictures:
                self._pictures.move_to_end(key)
                return self._pictures[key]
            if self._waiting >= _MOST_PICTURES_WAITING:
                raise _busy_drawing()
            self._waiting += 1
        try:
            drawing = asyncio.wrap_future(self._submit(partial(picture, source.report, name, narrow=narrow)))
            drawn = await asyncio.wait_for(drawing, _PICTURE_SECONDS)
        except TimeoutError:
            self.end()  # whatever holds it would hold every other figure
            raise _busy_drawing() from None
        except BrokenExecutor as error:
            raise _busy_drawing() from error
        finally:
            with self._lock:
                self._waiting -= 1
        if drawn is None:
            raise UnknownThingError(
                f"figure {name[:100]!r}", "the campaign's report has no such figure", "reload the page"
            )
        self._keep(key, drawn)
        return drawn

    def close(self) -> None:
        """Draw nothing more."""
        self._closed = True
        self.end()

    def end(self) -> None:
        """End the process; the next figure begins another one."""
        with self._lock:
            if self._ending is not None:
                self._ending.cancel()
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True, cancel_futures=True)

    def _submit(self, work: Callable[[], Drawn]) -> Future[Drawn]:
        with self._lock:
            if self._closed:
                raise RuntimeError("the server ends")
            if self._ending is not None:
                self._ending.cancel()
            self._ending = threading.Timer(_IDLE_SECONDS, self.end)
            self._ending.daemon = True
            self._ending.start()
            if self._executor is None:
                self._executor = self._make_executor()
            try:
                return self._executor.submit(work)
            except BrokenExecutor:
                self._executor = self._make_executor()
                return self._executor.submit(work)

    def _described(self, key: tuple[str, str], done: Future[tuple[Figure, ...]]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            _log.warning("the figures of %s cannot be shown: %s", key[0], error)
        with self._lock:
            # A process that died, say for want of memory, is tried again when the page is drawn next.
            if isinstance(error, BrokenExecutor):
                self._lists.pop(key, None)
            else:
                self._lists[key] = () if error is not None else done.result()
        self._listed(key[0])

    def _keep(self, key: tuple[str, str, str, bool], drawn: bytes) -> None:
        with self._lock:
            self._picture_bytes += len(drawn) - len(self._pictures.get(key, b""))
            self._pictures[key] = drawn
            while self._picture_bytes > _MOST_PICTURE_BYTES:
                self._picture_bytes -= len(self._pictures.popitem(last=False)[1])


class Conversions:
    """Converts reports to other forms, one at a time."""

    def __init__(self) -> None:
        self._pool = WorkerPool(1)
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0

    async def form(self, report: Path | bytes, form: Form) -> bytes:
        """A report (JSON, or its file) in another form; what is wrong with it, and what its disk refuses.

        Raises NotYetError where many wait, or if the process died or took minutes.
        """
        if self._waiting >= _MOST_FORMS_WAITING:
            raise _busy_converting("many reports are being converted")
        self._waiting += 1
        try:
            async with self._one_at_a_time:
                made = asyncio.wrap_future(self._pool().submit(converted, report, form))
                try:
                    return await asyncio.wait_for(made, _FORM_SECONDS)
                finally:
                    await asyncio.to_thread(self._pool.end)
        except TimeoutError:
            raise _busy_converting(f"it took more than {_FORM_SECONDS:.0f} s") from None
        except BrokenExecutor as error:
            raise _busy_converting("the process that converted it died") from error
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """End the process."""
        self._pool.end()


def _busy_drawing() -> NotYetError:
    return NotYetError("figure", "the server is drawing many figures", "reload the page in a minute")


def _busy_converting(cause: str) -> NotYetError:
    return NotYetError("report", cause, "take it as JSON, or try again in a minute")


# What the other processes do. They alone load Vega and read reports.


def described(report: Path | bytes) -> tuple[Figure, ...]:
    """The figures of a report (JSON), in its order, without what draws them; raises InputError, OSError."""
    return tuple(
        replace(figure, spec={}, described=figure.described[:_DESCRIBED_CHARACTERS])
        for figure in _figures_of(report).values()
    )


def picture(report: Path | bytes, name: str, *, narrow: bool = False) -> bytes | None:
    """A figure as SVG, ``narrow`` for a phone; None if there is none. Raises InputError, OSError."""
    from assay_report.figures import forms  # noqa: PLC0415 - see above

    figure = _figures_of(report).get(name)
    drawn = forms.narrow_svg if narrow else forms.svg
    return None if figure is None else drawn(figure).encode()


def converted(report: Path | bytes, form: Form) -> bytes:
    """A report in another form; raises InputError, OSError."""
    from assay_report.forms import single  # noqa: PLC0415
    from assay_report.reading import parse_report  # noqa: PLC0415

    return single(parse_report(_data_of(report), "report"), form)


def _figures_of(report: Path | bytes) -> dict[str, Figure]:
    return _parsed(_data_of(report))


def _data_of(report: Path | bytes) -> bytes:
    return report if isinstance(report, bytes) else report.read_bytes()


@lru_cache(maxsize=2)
def _parsed(report: bytes) -> dict[str, Figure]:
    from assay_report.figures import gallery  # noqa: PLC0415
    from assay_report.reading import parse_report  # noqa: PLC0415

    return {figure.name: figure for figure in gallery.of_report(parse_report(report))}
