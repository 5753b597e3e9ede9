"""The files of an analysis on the machine that makes it: those of a bucket are brought there and held."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache

from assay_server.analysis.runs.request import AnalysisRequest, RunData
from assay_server.record_place import RecordsPlace
from assay_server.store.objects.bucket import opened_bucket
from assay_server.store.objects.cache import RecordFetcher

_SPARE_FILES = 256


@contextlib.contextmanager
def at_hand(
    request: AnalysisRequest, is_read: Callable[[RunData], bool] = lambda run: True
) -> Iterator[AnalysisRequest]:
    """The request with paths of this machine, whose files stay until the block ends.

    ``is_read``: whether the files of a run are read. Raises StorageError if the bucket does not give them.
    """
    if request.records is None:
        yield request
        return
    fetcher, start = _fetcher(request.records), f"{request.records.url}/"
    files = 2 * sum(len(run.files) for run in request.runs if is_read(run))
    _allow_open_files(files + _SPARE_FILES)
    with contextlib.ExitStack() as held:

        def here(uri: str) -> str:
            return str(held.enter_context(fetcher.reading(uri.removeprefix(start))))

        def brought(run: RunData) -> RunData:
            cycles = None if run.cycles is None else brought(run.cycles)
            return replace(run, files=tuple(map(here, run.files)), cycles=cycles)

        runs = tuple(brought(run) if is_read(run) else run for run in request.runs)
        yield replace(request, runs=runs)


@lru_cache(maxsize=1)
def _fetcher(place: RecordsPlace) -> RecordFetcher:
    return RecordFetcher(opened_bucket(place), place.cache, place.cache_bytes)


def _allow_open_files(files: int) -> None:
    """Each file that is held is open: let this process have so many, as far as the system allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
