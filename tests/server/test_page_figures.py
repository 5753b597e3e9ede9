"""Figures for the page: listed and drawn elsewhere, kept by the content of their report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from assay_report.figures.finishing import width_of
from assay_report.figures.widths import NARROW_PX
from assay_server.campaigns.errors import NotYetError, UnknownThingError
from assay_server.web.report_processes import Source, Studio, described
from assay_server.web.views.templating import rendered
from tests.support.server.made_reports import HOSTILE, made_report
from tests.support.server.server_support import eventually

REPORT = json.dumps(made_report(2, kernel=HOSTILE, prefix=f"a'\"><b>{HOSTILE}")).encode()


class Counting(ThreadPoolExecutor):
    """A thread in place of the process; counts what it does, and may be broken."""

    def __init__(self) -> None:
        super().__init__(1)
        self.asked = 0
        self.broken = False

    def submit(self, function: Any, /, *arguments: Any, **keywords: Any) -> Future[Any]:
        self.asked += 1
        if self.broken:
            raise BrokenExecutor("it died")
        return super().submit(function, *arguments, **keywords)


class Workshop:
    def __init__(self) -> None:
        self.executors: list[Counting] = []
        self.listed: list[str] = []
        self.studio = Studio(self.make, self.listed.append)

    def make(self) -> Executor:
        self.executors.append(Counting())
        return self.executors[-1]

    @property
    def asked(self) -> int:
        return sum(each.asked for each in self.executors)


@pytest.fixture
def workshop() -> Iterator[Workshop]:
    made = Workshop()
    yield made
    made.studio.close()
    for each in made.executors:
        each.shutdown()


def listed(workshop: Workshop, source: Source) -> Any:
    eventually(lambda: workshop.studio.figures(source) is not None, "the list of figures")
    return workshop.studio.figures(source)


def test_a_page_does_not_wait_for_its_figures_and_is_drawn_again_when_they_are_listed(
    workshop: Workshop,
) -> None:
    source = Source("c-1", "a", REPORT)
    assert workshop.studio.figures(source) is None
    found = listed(workshop, source)
    assert workshop.listed == ["c-1"]
    assert [each.name for each in found if not each.workload][:2] == ["overview", "error-against-speedup"]
    assert workshop.asked == 1


def test_a_picture_is_drawn_once_for_a_report_and_again_for_the_next_one(workshop: Workshop) -> None:
    async def drawn(key: str) -> bytes:
        return await workshop.studio.picture(Source("c-1", key, REPORT), "overview")

    first = asyncio.run(drawn("a"))
    assert ElementTree.fromstring(first).tag.endswith("svg")
    assert b"<b>" not in first and b"<script" not in first
    assert (asyncio.run(drawn("a")), workshop.asked) == (first, 1)
    asyncio.run(drawn("b"))
    assert workshop.asked == 2
    phone = asyncio.run(workshop.studio.picture(Source("c-1", "b", REPORT), "overview", narrow=True))
    assert width_of(phone.decode()) <= NARROW_PX < width_of(first.decode())
    assert asyncio.run(drawn("b")) == first


def test_there_is_no_figure_of_another_name(workshop: Workshop) -> None:
    with pytest.raises(UnknownThingError, match="no such figure"):
        asyncio.run(workshop.studio.picture(Source("c-1", "a", REPORT), "../../metadata.sqlite"))


def test_a_process_that_died_is_replaced(workshop: Workshop) -> None:
    source = Source("c-1", "a", REPORT)
    listed(workshop, source)
    workshop.executors[0].broken = True
    assert asyncio.run(workshop.studio.picture(source, "overview"))
    assert len(workshop.executors) == 2


def test_nobody_fills_the_line_of_figures(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay_server.web.report_processes._MOST_PICTURES_WAITING", 0)
    with pytest.raises(NotYetError, match="many figures"):
        asyncio.run(workshop.studio.picture(Source("c-1", "a", REPORT), "overview"))


def test_a_report_that_cannot_be_read_is_said_on_the_page(workshop: Workshop, tmp_path: Path) -> None:
    for report in (b"{}", b"[", tmp_path / "gone.json"):
        assert listed(workshop, Source("c-1", str(report), report)) == ()
    page = rendered(
        "part_figures.html.j2", campaign_id="c-1", source=Source("c-1", "a", b""), figures=(), so_far=False
    )
    assert "cannot be shown" in page


def test_names_in_figures_are_text_on_the_page() -> None:
    source = Source("c-1", "a", REPORT)
    page = rendered(
        "part_figures.html.j2", campaign_id="c-1", source=source, figures=described(REPORT), so_far=True
    )
    assert "<b>" not in page and "<script" not in page
    assert page.count("<img ") == len([each for each in described(REPORT) if not each.empty])
