"""A pytest plugin of ``make test``: whole modules to a worker, those that wait among the others.

    pytest -n 3 --dist loadgroup -p tests.support.spread_modules

A test that starts processes mostly waits, one that computes keeps a core busy: side by side they take less
time than one kind after the other. And pytest-xdist looks at all units of work after each test: with a unit
for each of 10,000 tests that took half a minute of a core.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeVar

import pytest
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

_Module = TypeVar("_Module")

# Of the others: the end is for short modules, so that no worker is left alone with a long one.
_SPREAD_OVER = 0.8


class WholeModules(LoadGroupScheduling):  # type: ignore[misc]
    """A unit of work is a module, or a group of tests, of one or several modules, that keep together."""

    def _split_scope(self, nodeid: str) -> str:
        return str(super()._split_scope(nodeid)).partition("::")[0]


def pytest_configure(config: pytest.Config) -> None:
    """Keep the order of the collection, in which long and short modules are mixed."""
    config.option.loadscopereorder = False


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> WholeModules:
    """The scheduler of all workers."""
    return WholeModules(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put modules that are marked with "processes" at equal steps among the others."""
    modules = [list(tests) for _, tests in groupby(items, lambda item: item.nodeid.partition("::")[0])]
    items[:] = [
        test
        for module in spread(
            [each for each in modules if _waits(each)], [each for each in modules if not _waits(each)]
        )
        for test in module
    ]


def spread(some: Sequence[_Module], others: Sequence[_Module]) -> list[_Module]:
    """Both in their order, ``some`` at equal steps within the first part of ``others``."""
    step = _SPREAD_OVER * len(others) / max(1, len(some))
    places = [(at * step, 0, each) for at, each in enumerate(some)]
    places += [(float(at), 1, each) for at, each in enumerate(others)]
    return [each for _, _, each in sorted(places, key=lambda place: place[:2])]


def _waits(module: Sequence[pytest.Item]) -> bool:
    return any(test.get_closest_marker("processes") for test in module)
