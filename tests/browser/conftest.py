"""Debian's Chromium for tests of pages: `make test-browser` fetches it; elsewhere these tests are skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser import unpack
from tests.real_tools.root import why_not
from tests.support.browser.opening import OpenPage, opener

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The browser, once for all tests; skipped with the reason where it cannot be had."""
    given = os.environ.get("ASSAY_BROWSER")
    if not given:
        pytest.skip("'make test-browser' runs it")
    cache = Path(given)
    if reason := why_not(cache, unpack.CHROMIUM):
        pytest.skip(f"no Chromium: {reason}")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - starts a process of its own

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(unpack.program(cache)),
            # Its own sandbox needs user namespaces, which containers refuse; pages here are ours.
            args=["--no-sandbox"],
            env={**os.environ, **unpack.environment(cache)},
        )
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[OpenPage]:
    """Open a file or an address in a window of a size; what goes wrong in the page fails the test."""
    with opener(chromium) as open_one:
        yield open_one


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tests leave pictures for people; CI keeps the folder that ASSAY_SCREENSHOTS names."""
    folder = Path(os.environ.get("ASSAY_SCREENSHOTS") or tmp_path_factory.mktemp("screenshots")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder
