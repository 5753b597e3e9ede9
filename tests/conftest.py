"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# Tests run side by side: numeric libraries with a thread for every core would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Hypothesis lets an example take 0.2 s, which on a busy machine says nothing about the code.
settings.register_profile("assay", deadline=None)
settings.load_profile("assay")

_BESIDE_THE_CHECKOUT = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect 8,000 tests without a look for garbage, which would visit all of them again and again.

    Looks during the tests leave out what was collected: it stays to the end.
    """
    gc.disable()
    try:
        collected = yield
        if "assay_server.store.sqlite" in sys.modules:
            from tests.support.server import made_once  # noqa: PLC0415 - loads the server's store

            made_once.install()
        return collected
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """``make test`` runs a short form of each whole campaign, ``make campaigns`` the campaign."""
    if item.get_closest_marker("campaigns") and not os.environ.get("ASSAY_CAMPAIGNS"):
        pytest.skip("minutes of whole campaigns: 'make campaigns' runs it")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real recordings; the test is skipped where it is absent."""
    path = Path(os.environ.get("ASSAY_SHARED_DATA", _BESIDE_THE_CHECKOUT))
    if not path.is_dir():
        if os.environ.get("ASSAY_REQUIRE_SHARED_DATA") == "1":
            pytest.fail(f"the recordings are required, but {path} is not there")
        pytest.skip(f"the recordings are not at {path}; set ASSAY_SHARED_DATA to where they are")
    return path


@pytest.fixture(autouse=True)
def root_log_as_before() -> Iterator[None]:
    """Handlers and level of the log, set up by one test, must not reach the next in its process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
