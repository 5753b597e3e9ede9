"""Opening pages in a browser, and what is asked of every page of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Scheme = Literal["light", "dark"]


@dataclass(frozen=True)
class Window:
    """The size of a window in CSS pixels, and whether the reader prefers dark colours."""

    width: int = 1400
    height: int = 900
    scheme: Scheme = "light"


DESK = Window()
PHONE = Window(width=400, height=800)


@dataclass
class Troubles:
    """What a page did that it must not: errors on its console, exceptions, requests that failed."""

    said: list[str] = field(default_factory=list)


OpenPage = Callable[..., "Page"]


@contextlib.contextmanager
def opener(browser: Browser) -> Iterator[OpenPage]:
    """A function that opens an address or a file; at the end, no page may have had any trouble."""
    troubles = Troubles()
    contexts = []

    def open_one(place: str | Path, window: Window = DESK, **options: Any) -> Page:
        context = browser.new_context(
            viewport={"width": window.width, "height": window.height}, color_scheme=window.scheme, **options
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: said.type == "error" and troubles.said.append(said.text))
        page.on("pageerror", lambda error: troubles.said.append(str(error)))
        page.on("dialog", lambda dialog: (troubles.said.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.goto(place.absolute().as_uri() if isinstance(place, Path) else place)
        return page

    try:
        yield open_one
    finally:
        for context in contexts:
            context.close()
    assert troubles.said == []


def axe_violations(page: Page) -> list[str]:
    """What axe calls serious or critical on a page: the rule, what it asks, and the first element."""
    import axe_core_python  # noqa: PLC0415 - only tests that drive a browser have it

    script = Path(axe_core_python.__file__).parent / "axe.min.js"
    page.evaluate(script.read_text() + "; undefined")
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['help']}: {each['nodes'][0]['html'][:200]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def sideways_overflow(page: Page) -> int:
    """By how many CSS pixels the page is wider than its window."""
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert isinstance(wide, int)
    return wide
