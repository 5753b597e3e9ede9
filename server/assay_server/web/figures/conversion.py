"""Forms of reports that are made when somebody asks for them: in a process that ends with its form.

Reading a long report holds all threads of a process, and takes memory that this one need not give back.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from assay_server.campaigns.analysing.executors import WorkerPool
from assay_server.campaigns.errors import NotYetError

if TYPE_CHECKING:
    from assay_report.forms import Form

_PATIENCE_SECONDS = 300.0
_MOST_WAITING = 16


class Conversions:
    """Converts reports, one at a time."""

    def __init__(self) -> None:
        self._pool = WorkerPool(1)
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0

    async def form(self, report: Path | bytes, form: Form) -> bytes:
        """A report (JSON, or its file) in another form; what is wrong with it, and what its disk refuses.

        Raises NotYetError where many wait, or if the process died or took minutes.
        """
        if self._waiting >= _MOST_WAITING:
            raise _busy("many reports are being converted")
        self._waiting += 1
        try:
            async with self._one_at_a_time:
                made = asyncio.wrap_future(self._pool().submit(converted, report, form))
                try:
                    return await asyncio.wait_for(made, _PATIENCE_SECONDS)
                finally:
                    await asyncio.to_thread(self._pool.end)
        except TimeoutError:
            raise _busy(f"it took more than {_PATIENCE_SECONDS:.0f} s") from None
        except BrokenExecutor as error:
            raise _busy("the process that converted it died") from error
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """End the process."""
        self._pool.end()


def converted(report: Path | bytes, form: Form) -> bytes:
    """A report in another form; raises InputError, OSError."""
    from assay_report.forms import single  # noqa: PLC0415 - only the process of its own loads it
    from assay_report.reading import parse_report  # noqa: PLC0415

    data = report if isinstance(report, bytes) else report.read_bytes()
    return single(parse_report(data, "report"), form)


def _busy(cause: str) -> NotYetError:
    return NotYetError("report", cause, "take it as JSON, or try again in a minute")
