"""What runs on a worker that the server did not start: one task at a time, in the server's releases.

A worker gets tasks only if it has the packages whose releases numbers may change with.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

from assay_server.campaigns.analysing.executors.interface import WorkersAwayError

Result = TypeVar("Result")
Releases = Mapping[str, str | None]

# An analysis limits the threads of numeric libraries for its whole process.
_one_task = threading.Lock()

# Besides Python. A report names some of them.
_ALWAYS_NEEDED = ("assay-gpu", "numpy", "pyarrow", "scikit-learn", "scipy", "pydantic", "duckdb")
_TRIM_VARIABLE, _SET_BY_NANNY = "MALLOC_TRIM_THRESHOLD_", "65536"
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_MAPPED_FROM_BYTES = 32 << 20  # the most that glibc allows


@cache
def releases_here() -> Releases:
    """The releases of this process that workers need, too; None: not installed."""
    return _releases_here(("python", *computing_packages()))


@cache
def _releases_here(names: tuple[str, ...]) -> Releases:
    from distributed.versions import get_versions  # noqa: PLC0415 - whoever asks uses Dask

    return releases_of(get_versions(packages=packages_in(names)), names)


def releases_of(reported: Mapping[str, Any] | None, names: Iterable[str]) -> Releases:
    """The releases in Dask's report of versions of a process: of Python, and of packages by name."""
    packages = (reported or {}).get("packages") or {}
    return {name: packages.get(name) for name in names}


def packages_in(names: Iterable[str]) -> list[str]:
    """What Dask is asked for: it says Python's release by itself."""
    return [name for name in names if name != "python"]


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
    differ = differences(_releases_here(tuple(expected)), expected)
    if differ:
        raise refused(where, [f"{_own_name()} has {', '.join(differ)}"])
    keep_freed_memory()
    with _one_task:
        return function(*arguments)


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


def computing_packages() -> tuple[str, ...]:
    """These packages, and those that bring a method that is installed here."""
    from assay_sampling.methods.registry import methods_of_others, package_of  # noqa: PLC0415 - loads methods

    brought = {package[0] for name in methods_of_others() if (package := package_of(name)) is not None}
    return (*_ALWAYS_NEEDED, *sorted(brought.difference(_ALWAYS_NEEDED)))


@cache
def keep_freed_memory() -> None:
    """Undo what Dask's nanny does to the memory of its workers, unless a person chose another value.

    With it, glibc gives every array back to the system when it is freed, and fetches it page by page when the
    next one is made: a third of an analysis' CPU. These are the limits that glibc comes to by itself in a
    process of the server. Source: distributed.dask.org, "Worker Memory Management"; mallopt(3).
    """
    if os.environ.get(_TRIM_VARIABLE) != _SET_BY_NANNY:
        return
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        set_limit = ctypes.CDLL(None).mallopt
        set_limit(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)
        set_limit(_M_TRIM_THRESHOLD, 2 * _MAPPED_FROM_BYTES)
