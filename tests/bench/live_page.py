"""The live page of a campaign of 200 workloads: what it weighs, and what 50 people who watch it cost.

The server is a process of its own. Something changes twice a second, so that the page changes as often as
it is drawn; the same changes without anybody who watches are the comparison.
"""

from __future__ import annotations

import contextlib
import http.client
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from assay_client.remote.client import Client
from assay_server.app import Server, ServerSettings
from tests.bench.first_paint import first_paints
from tests.bench.lab.goals import Goal
from tests.bench.served import Served, served
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import StandInExecutor

WORKLOADS, WATCHERS = 200, 50
WATCHED_CORES = 0.1
_SECONDS = 20.0
_CHANGES_SECONDS = 0.5
_BEATS_SECONDS = 0.02


@contextmanager
def _paged(folder: str, workloads: int) -> Iterator[tuple[str, str]]:
    """A server with a campaign of so many workloads: its socket, and a link to the page."""
    work = Path(folder)
    rows = "".join(
        f"  - name: workload-{number:03d}\n    recordings:\n"
        f"      - {{device: V100, light: {number}.sqlite, detailed: {number}.csv}}\n"
        for number in range(workloads)
    )
    (work / "campaign.yaml").write_text(f"campaign: wide\nworkloads:\n{rows}")
    address = f"unix:{work}/server.sock"
    settings = ServerSettings(state_dir=work / "state", listen=(address,), web="127.0.0.1:0")
    executor = StandInExecutor()
    with Server(settings, make_executor=lambda: executor), Client(address) as client:
        client.submit(work / "campaign.yaml")
        yield address, client.web_link()["url"]
    executor.close()


class _Browser:
    """As much of a browser as the page needs: a session, and connections to the server."""

    def __init__(self, link: str) -> None:
        self._host, _, secret = link.removeprefix("http://").partition("/login?link=")
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = self._asked("POST", "/login", f"link={secret}", form)
        self._cookie = answer.headers["set-cookie"].partition(";")[0]

    def _asked(
        self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(self._host, timeout=60)
        connection.request(method, path, body, headers or {})
        return connection.getresponse()

    def get(self, path: str) -> bytes:
        return self.opened(path).read()

    def opened(self, path: str) -> http.client.HTTPResponse:
        return self._asked("GET", path, headers={"Cookie": self._cookie})


@dataclass(frozen=True)
class _Phase:
    """What was seen in some seconds: CPU of the server, heartbeats' latencies, bytes that watchers read."""

    cores: float
    beats_ms: list[float]
    bytes_read: int

    @property
    def beat_p99_ms(self) -> float:
        return statistics.quantiles(self.beats_ms, n=100)[98]


def live_page(scale: float, goals: list[Goal]) -> Iterator[str]:
    """The lines of the section, as they are measured; adds its goals."""
    seconds = max(2.0, _SECONDS * min(1.0, scale))
    yield f"\n## A live page of {WORKLOADS} workloads\n"
    with (
        tempfile.TemporaryDirectory(prefix="assay-") as folder,
        served(_paged, folder, WORKLOADS) as server,
        Client(server.ready[0]) as client,
        PlayingAgent(server.ready[0]) as agent,
    ):
        agent.register()
        browser = _Browser(server.ready[1])
        yield from _weighed(browser, client, goals)
        alone = _phase(server, client, agent, [], seconds)
        streams = [_stream(browser) for _ in range(WATCHERS)]
        watched = _phase(server, client, agent, streams, seconds)
        painted = list(first_paints(Path(folder), client, "wide-1", scale, goals))
    cost = watched.cores - alone.cores
    yield "| watchers | cores of the server | heartbeats' 99th percentile, ms | bytes a second for each |"
    yield "|---|---:|---:|---:|"
    each = watched.bytes_read / WATCHERS / seconds
    yield f"| none | {alone.cores:.3f} | {alone.beat_p99_ms:.1f} | |"
    yield f"| {WATCHERS} | {watched.cores:.3f} | {watched.beat_p99_ms:.1f} | {each:,.0f} |"
    yield from painted
    text = f"what {WATCHERS} watchers of one page cost the server, in cores"
    goals.append(Goal(text, f"{cost:.3f}", f"at most {WATCHED_CORES:g}", cost <= WATCHED_CORES))


def _weighed(browser: _Browser, client: Client, goals: list[Goal]) -> Iterator[str]:
    """Bytes of the page with its style and script, and how long they take when the page is drawn anew."""
    took, page = [], b""
    for number in range(7):
        client.pause("wide-1") if number % 2 else client.resume("wide-1")
        time.sleep(1.1)  # a drawing is used again for a second
        began = time.perf_counter()
        page = browser.get("/campaigns/wide-1")
        took.append(time.perf_counter() - began)
    text = page.decode()
    release = text.partition("/static/")[2].partition("/")[0]
    others = [len(browser.get(f"/static/{release}/{name}")) for name in ("page.css", "live.js")]
    median = statistics.median(took)
    yield f"First answer {1000 * median:.0f} ms, {len(page):,} bytes; style and script {sum(others):,}.\n"
    goals.append(Goal("first answer of the page, s", f"{median:.3f}", "at most 1", median <= 1))


def _stream(browser: _Browser) -> http.client.HTTPResponse:
    page = browser.get("/campaigns/wide-1").decode()
    path = page.partition('data-stream="')[2].partition('"')[0].replace("&amp;", "&")
    return browser.opened(path)


def _phase(
    server: Served,
    client: Client,
    agent: PlayingAgent,
    streams: list[http.client.HTTPResponse],
    seconds: float,
) -> _Phase:
    over, read, beats = threading.Event(), [0] * len(streams), list[float]()

    def watch(number: int) -> None:
        # Closing a stream under its reader, which ends the phase, raises what http.client happens to raise.
        with contextlib.suppress(OSError, ValueError, AttributeError, http.client.HTTPException):
            while not over.is_set() and (data := streams[number].readline()):
                read[number] += len(data)

    def change() -> None:
        paused = False
        while not over.wait(_CHANGES_SECONDS):
            paused = not paused
            (client.pause if paused else client.resume)("wide-1", run_id="wide-1.0007")

    def beat() -> None:
        while not over.wait(_BEATS_SECONDS):
            began = time.perf_counter()
            agent.heartbeat()
            beats.append(1000 * (time.perf_counter() - began))

    watching: list[Callable[[], None]] = [lambda n=number: watch(n) for number in range(len(streams))]  # type: ignore[misc]
    threads = [threading.Thread(target=do, daemon=True) for do in (*watching, change, beat)]
    for thread in threads:
        thread.start()
    before = server.used().cpu_seconds
    time.sleep(seconds)
    used = server.used().cpu_seconds - before
    over.set()
    for stream in streams:
        stream.close()
    threads[-1].join()
    threads[-2].join()
    return _Phase(used / seconds, beats, sum(read))
