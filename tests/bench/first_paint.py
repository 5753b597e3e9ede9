"""When a browser first paints a campaign's page, and what that weighs: 200 workloads, 5 million launches.

Chromium is that of `make browser`; without it these lines say so. The campaigns have ended: their reports are
made up, and have a figure for every workload.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay_client.remote.client import Client
from assay_core.records.campaign import CampaignState
from assay_report.figures.drawn import drawn
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.profile import Profile
from assay_sampling.methods import registry
from assay_server.store.records import LocalRecordStore
from assay_server.store.sqlite import SqliteStore
from tests.bench.lab.goals import Goal
from tests.bench.made_data import light_table, names_for
from tests.browser import unpack
from tests.real_tools.root import why_not
from tests.support.server.made_reports import GPUS, made_report, made_rows

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

PAINTED_SECONDS = 1.0
LAUNCHES = 5_000_000
_CACHE = Path.home() / ".cache" / "assay" / "browser"
_LOADS = 7
_KERNELS = 300
_PAINT = """() => new Promise(done => new PerformanceObserver(paints => {
  const [page] = performance.getEntriesByType('navigation');
  const others = performance.getEntriesByType('resource').filter(each => !each.name.includes('/events/'));
  for (const paint of paints.getEntriesByName('first-contentful-paint'))
    done([paint.startTime, page.transferSize, others.reduce((sum, each) => sum + each.transferSize, 0)]);
}).observe({type: 'paint', buffered: true}))"""


@dataclass(frozen=True)
class _Painted:
    """Medians of several loads: milliseconds to the first paint, bytes of the page and of all else."""

    first_ms: float
    page_bytes: int
    other_bytes: int


def first_paints(
    folder: Path, client: Client, campaign_id: str, scale: float, goals: list[Goal]
) -> Iterator[str]:
    """The lines of this part; ``campaign_id`` is a campaign of 200 workloads on the server of ``folder``."""
    cache = Path(os.environ.get("ASSAY_BROWSER", _CACHE))
    if reason := why_not(cache, unpack.CHROMIUM):
        yield f"\nFirst paint: left out, no Chromium ({reason}); `make browser` fetches it.\n"
        return
    launches = max(100_000, int(LAUNCHES * min(1.0, scale)))
    with _browser(cache) as browser:
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        page = context.new_page()
        page.goto(client.web_link()["url"])
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/")
        place = f"{page.url}campaigns/{campaign_id}"
        yield "\n| page in Chromium | first paint, ms | bytes of the page | and of all else |"
        yield "|---|---:|---:|---:|"
        for title, report in (
            ("200 workloads, running", None),
            ("200 workloads, ended, with results and figures", made_report(200)),
            ("1,000 workloads on 4 GPUs, ended", made_report(1000, gpus=(*GPUS, "A100"))),
            (f"a timeline of {launches:,} launches", _long(launches)),
        ):
            if report is not None:
                _end_with(folder, campaign_id, report)
            found = _painted(context, place)
            yield f"| {title} | {found.first_ms:.0f} | {found.page_bytes:,} | {found.other_bytes:,} |"
            seconds = found.first_ms / 1000
            goals.append(
                Goal(f"first paint: {title}, s", f"{seconds:.3f}", "at most 1", seconds <= PAINTED_SECONDS)
            )
        yield _timeline(context, place)


@contextmanager
def _browser(cache: Path) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - starts a process of its own

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(unpack.program(cache)),
            args=["--no-sandbox"],
            env={**os.environ, **unpack.environment(cache)},
        )
        yield browser
        browser.close()


def _painted(context: BrowserContext, place: str) -> _Painted:
    found: list[tuple[float, int, int]] = []
    for _ in range(_LOADS):
        page = context.new_page()
        page.goto(place)
        found.append(page.evaluate(_PAINT))
        page.close()
        time.sleep(1.1)  # a drawing is used again for a second
    first_ms, page_bytes, other_bytes = (statistics.median(column) for column in zip(*found, strict=True))
    return _Painted(first_ms, int(page_bytes), int(other_bytes))


def _timeline(context: BrowserContext, place: str) -> str:
    """From opening a workload to the timeline of its launches, which is drawn only now."""
    page = context.new_page()
    page.goto(place)
    page.locator("details.workload").first.wait_for(timeout=120_000)
    began = time.perf_counter()
    page.locator("details.workload summary").first.click()
    picture = page.locator("img[src*='-launches.svg']").first
    picture.scroll_into_view_if_needed()
    picture.evaluate("image => image.decode()")
    took = time.perf_counter() - began
    size = page.evaluate(
        """performance.getEntriesByType('resource').filter(e => e.name.includes('-launches.svg'))
             .reduce((sum, each) => sum + each.transferSize, 0)"""
    )
    return (
        f"\nFrom opening a workload to its timeline, drawn for the first time: {took:.2f} s, {size:,} bytes."
    )


def _end_with(folder: Path, campaign_id: str, report: dict[str, Any]) -> None:
    """End the campaign with a made-up report, as another process would."""
    data = json.dumps(report).encode()
    records = LocalRecordStore(folder / "state")
    records.write_report(campaign_id, "json", data)
    records.write_report(campaign_id, "parquet", made_rows(report))
    store = SqliteStore(folder / "state" / "metadata.sqlite")
    with store.transaction() as transaction:
        campaign = transaction.campaign(campaign_id)
        assert campaign is not None
        transaction.save_campaign(replace(campaign, state=CampaignState.DONE, has_report=True))
    store.close()


def _long(launches: int) -> dict[str, Any]:
    """A report of one workload of so many launches."""
    table = Launches(light_table(launches, kernels=_KERNELS, shapes=2), names_for(_KERNELS), ("generated",))
    data = drawn(registry.select("stem", Profile(table), {}, 0), table)
    return {**made_report(1), "drawn": {"workload-000/pks": data.to_dict()}}
