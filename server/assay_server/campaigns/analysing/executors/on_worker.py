"""What runs on a worker that the server did not start: one task at a time, in the server's releases."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from assay_server.campaigns.analysing.executors.seam import WorkersAwayError

Result = TypeVar("Result")
Releases = Mapping[str, str | None]

# Reports name these releases, and numbers may change with them.
PACKAGES = ("assay-gpu", "numpy", "pyarrow", "scikit-learn")
# An analysis limits the threads of numeric libraries for its whole process.
_one_task = threading.Lock()
_TRIM_OF_NANNY = "65536"
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_MAPPED_FROM_BYTES = 32 << 20  # the most that glibc allows


@cache
def releases_here() -> Releases:
    """The releases of this process, in the words of Dask's report of versions; None: not installed."""
    from distributed.versions import get_versions  # noqa: PLC0415 - whoever asks uses Dask

    return releases_of(get_versions(packages=PACKAGES))


def releases_of(reported: Mapping[str, Any] | None) -> Releases:
    """The releases in Dask's report of versions of a process."""
    packages = (reported or {}).get("packages") or {}
    return {name: packages.get(name) for name in ("python", *PACKAGES)}


def differences(there: Releases, here: Releases) -> list[str]:
    """What another process has in another release, for people; empty: nothing."""
    return [
        f"{name} {there[name] or 'missing'} instead of {release or 'none'}"
        for name, release in here.items()
        if there[name] != release
    ]


def run_task(
    expected: Releases, where: str, function: Callable[..., Result], arguments: tuple[Any, ...]
) -> Result:
    """Run a task if this process has the server's releases. Raises WorkersAwayError, and the task's errors.

    ``where``: the scheduler's address, for people.
    """
    differ = differences(releases_here(), expected)
    if differ:
        raise refused(where, [f"{_own_name()} has {', '.join(differ)}"])
    _let_memory_be_kept()
    with _one_task:
        return function(*arguments)


@cache
def _let_memory_be_kept() -> None:
    """Undo what Dask's nanny does to the memory of its workers, unless a person chose another value.

    With it, glibc gives every array back to the system when it is freed, and fetches it page by page when the
    next one is made: a third of an analysis' CPU. These are the limits that glibc comes to by itself in a
    process of the server. Source: distributed.dask.org, "Worker Memory Management"; mallopt(3).
    """
    if os.environ.get("MALLOC_TRIM_THRESHOLD_") != _TRIM_OF_NANNY:
        return
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        set_limit = ctypes.CDLL(None).mallopt
        set_limit(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
        set_limit(_M_TRIM_THRESHOLD, 2 * _MAPPED_FROM_BYTES)


def refused(where: str, reasons: list[str]) -> WorkersAwayError:
    """Workers that may not be used, each with what differs."""
    return WorkersAwayError(
        where,
        f"no worker there may be used: {'; '.join(reasons)}",
        "start workers with the server's releases of Assay, Python and these packages",
    )


def _own_name() -> str:
    from distributed import get_worker  # noqa: PLC0415

    worker = get_worker()
    return f"worker {worker.name} ({worker.address})"
