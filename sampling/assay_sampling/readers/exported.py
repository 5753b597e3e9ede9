"""A report of Nsight that its own tool exported for us: read as the export, told of as the report."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from assay_sampling.errors import InputError, NoLaunchesError
from assay_sampling.launches.table import LaunchBatch
from assay_sampling.readers.base import (
    DEFAULT_MAX_LAUNCHES,
    OpenRecording,
    ReadOptions,
    Recording,
    ToolReport,
)

_NEWER = "use a tool as new as the one that wrote it, or profile again"


class ExportedRecording(OpenRecording):
    """The export of a report; it is in a temporary folder until the recording is closed.

    Args:
        report: what was exported.
        options: those of the reader; ``export`` must be there.
        open_export: opens the export.
        results: how many launches there must be; 0 if unknown.

    Raises what the export raises, and InputError, about the report, for an export that cannot be read.
    """

    def __init__(
        self,
        report: ToolReport,
        options: ReadOptions,
        open_export: Callable[[Path, ReadOptions], Recording],
        results: int = 0,
    ) -> None:
        assert options.export is not None
        self._directory = tempfile.TemporaryDirectory(prefix="assay-", ignore_cleanup_errors=True)
        self._results = results
        self.path = report.path
        try:
            export = options.export(report, Path(self._directory.name))
            with self._of_report():
                self._inner = open_export(export, replace(options, export=None))
        except BaseException:
            self._directory.cleanup()
            raise
        super().__init__(report.path, self._inner.format, self._inner.schema)

    def batches(self, max_launches: int = DEFAULT_MAX_LAUNCHES) -> Iterator[LaunchBatch]:
        """See :class:`assay_sampling.readers.base.Recording`."""
        self.notes.clear()
        yield from self._read(max_launches)
        self.notes.extend(self._inner.notes)

    def _read(self, max_launches: int) -> Iterator[LaunchBatch]:
        launches = 0
        with self._of_report():
            for batch in self._inner.batches(max_launches):
                launches += batch.records.num_rows
                yield batch
        if self._results and launches != self._results:
            raise InputError(
                self.path,
                f"the report holds {self._results:,} results, but its tool gives {launches:,} of them",
                _NEWER,
            )

    @contextlib.contextmanager
    def _of_report(self) -> Iterator[None]:
        """Errors of the export, which is about to be removed, as errors of the report."""
        try:
            yield
        except NoLaunchesError as error:
            raise NoLaunchesError(self.path, error.cause, error.remedy) from error
        except InputError as error:
            place = "" if error.line is None else f" in line {error.line:,}"
            raise InputError(
                self.path, f"its export cannot be read{place}: {error.cause}", error.remedy, field=error.field
            ) from error

    def close(self) -> None:
        self._inner.close()
        self._directory.cleanup()
