"""The demonstration: the example campaign of virtual GPUs, through a server and three agents as processes.

Everything is on disk in one folder. If any process is killed at any moment, the next demo continues from
there and ends in the same report.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from assay_client.demonstration.page_port import HOST, page_port
from assay_client.demonstration.processes import Say, Service, running_service, silent
from assay_client.ending import ended_in_order, raise_if_asked
from assay_client.files import write_atomically
from assay_client.pages import folder as folder_of
from assay_client.remote.client import Client
from assay_client.remote.outcome import Follow, Outcome, Status, see_through
from assay_core.files.durable import storage_errors
from assay_core.records.campaign import ENDED_CAMPAIGNS
from assay_report.markdown import markdown_files
from assay_report.model.report import Report
from assay_report.model.scores import SummaryEntry
from assay_report.texts import refused_text
from assay_sampling.errors import AssayError, ParameterError, StorageError

CAMPAIGN = "virtual.yaml"
WORKLOADS = "virtual"
GPUS = ("V100", "RTX 2060", "RTX 3070")
NOTICE = "synthetic: everything is measured on virtual GPUs, and no silicon is involved"

_LOOK_SECONDS = 0.5
_LAST_PAGE = "report.md"  # written last: if it exists, the demo has finished
_PAGES = ("report.json", "report.html")
_PICTURES = "report-pictures"


def run_demo(out: Path, *, follow: Follow, say: Say = silent, campaign: Path | None = None) -> Outcome:
    """Run the demonstration in a folder, or continue one that was killed there.

    Args:
        out: the folder for campaign, state, logs and report. A finished demonstration starts over.
        follow: gets the statuses as they come and returns the last.
        say: gets messages for people; called from any thread.
        campaign: another campaign file for the same GPUs; the example campaign of virtual GPUs by default.

    Raises StorageError if the folder cannot be used, AssayError if a program cannot be kept alive.
    An interrupted campaign can be continued later.
    """
    with ended_in_order(), _folder_lock(out):
        if (out / _LAST_PAGE).exists():
            say(f"the demo in {out} is finished: this one starts over there")
            _clear(out)
        shutil.rmtree(out / ".cleared", ignore_errors=True)
        file = campaign or _unpacked(out / "campaign")
        workers = os.cpu_count() or 1
        with running_service(
            out / "state", out / "logs", GPUS, say=say, analysis_workers=workers, web=_web(out)
        ) as service, Client(service.address) as client:  # fmt: skip
            _say_page(client, say)
            try:
                campaign_id = _taken_up(client, say) or client.submit(file)
                outcome = see_through(
                    client,
                    campaign_id,
                    out,
                    lambda statuses: follow(_while_alive(statuses, service)),
                    cancel_when_interrupted=False,
                )
            except KeyboardInterrupt:
                # Agents give their runs back first, which takes some seconds.
                say("interrupted: server and agents are stopped; the next demo there continues")
                raise
        return _with_markdown(outcome, out)


def _never() -> bool:
    return False


def show_page(out: Path, *, say: Say = silent, until: Callable[[], bool] = _never) -> None:
    """Serve the live page of a finished demonstration until this program is asked to end.

    ``until`` is asked twice a second whether somebody has ended it in another way.

    Raises ParameterError if the folder has no demo, and the errors of :func:`run_demo`.
    """
    if not (out / _LAST_PAGE).exists():
        raise ParameterError(str(out), "no demo has finished there", f"run it: assay demo --out {out}")
    with (
        ended_in_order(),
        _folder_lock(out),
        running_service(out / "state", out / "logs", say=say, web=_web(out)) as service,
        Client(service.address) as client,
    ):
        _say_page(client, say)
        say(f"another link: assay lab login --web --server {service.address}")
        say("Ctrl-C ends it" if until is _never else "Enter or Ctrl-C ends it")
        with contextlib.suppress(KeyboardInterrupt):
            while not until():
                time.sleep(_LOOK_SECONDS)
                raise_if_asked()
                service.raise_problem()


def _web(out: Path) -> str:
    """Where a demo's folder has its page; raises ParameterError, StorageError."""
    with storage_errors(out):
        return f"{HOST}:{page_port(out)}"


def _say_page(client: Client, say: Say) -> None:
    say(f"live page, to be opened once within two minutes: {client.web_link()['url']}")


def _while_alive(statuses: Iterable[Status], service: Service) -> Iterator[Status]:
    """Yield the statuses as they come; raise at once if a child of the service cannot be kept alive."""
    received: queue.SimpleQueue[Status | Exception | None] = queue.SimpleQueue()

    def receive() -> None:
        try:
            for status in statuses:
                received.put(status)
            received.put(None)
        except Exception as error:  # noqa: BLE001 - raised again where the statuses are awaited
            received.put(error)

    threading.Thread(target=receive, name="assay-watch", daemon=True).start()
    while True:
        try:
            item = received.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            raise_if_asked()
            service.raise_problem()
            continue
        raise_if_asked()
        if isinstance(item, Exception):
            service.raise_problem()
            raise item
        if item is None:
            return
        yield item


def _taken_up(client: Client, say: Say) -> str | None:
    """The campaign that an earlier process left; None: nothing is left to continue."""
    campaigns = [c for c in client.campaigns() if c["state"] == "done" or c["state"] not in ENDED_CAMPAIGNS]
    if not campaigns:
        return None
    say(f"continuing {campaigns[-1]['campaign_id']}, which an earlier demo left")
    return str(campaigns[-1]["campaign_id"])


def _with_markdown(outcome: Outcome, out: Path) -> Outcome:
    if outcome.report is None:
        return outcome
    # The pictures first: the text that refers to them is there only when they are.
    for path, text in reversed(markdown_files(outcome.report).items()):
        write_atomically(out / path, text)
    return replace(outcome, files={**outcome.files, "markdown": out / _LAST_PAGE})


def without_numbers(report: Report) -> list[str]:
    """A line for each summary entry without numbers, with the reason in short."""
    return [
        f"{entry.workload} on {entry.device} is {entry.status}: {_in_short(entry)}"
        for entry in report.summary
        if entry.status != "ok"
    ]


def _in_short(entry: SummaryEntry) -> str:
    """The reason of an entry, without the remedy, which the report has."""
    return refused_text(entry) if entry.error is not None and entry.error.differences else entry.reason


def _unpacked(folder: Path) -> Path:
    """Unpack the example campaign and its workloads into a folder; returns the campaign file."""
    source = folder_of("campaigns")
    for path in (*sorted((source / WORKLOADS).glob("*.toml")), source / CAMPAIGN):
        target = folder / path.relative_to(source)
        content = path.read_bytes()
        if not target.is_file() or target.read_bytes() != content:
            write_atomically(target, content)
    return folder / CAMPAIGN


def _clear(out: Path) -> None:
    """Remove a finished demonstration: its state first, its last page last."""
    try:
        if (out / "state").exists():
            shutil.rmtree(out / ".cleared", ignore_errors=True)
            (out / "state").replace(out / ".cleared")
        for name in ("logs", _PICTURES):
            shutil.rmtree(out / name, ignore_errors=True)
        for name in (*_PAGES, _LAST_PAGE):
            (out / name).unlink(missing_ok=True)
    except OSError as error:
        raise _unusable(out, error) from error


@contextlib.contextmanager
def _folder_lock(out: Path) -> Iterator[None]:
    """Lock the folder while the block runs; the kernel unlocks it when the process dies."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        handle = os.open(out / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(out, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise StorageError(
            str(out), "another demo is running there", "wait for it, or name another folder with --out"
        ) from None
    try:
        yield
    finally:
        os.close(handle)


def _unusable(out: Path, error: OSError) -> AssayError:
    return StorageError(
        str(out),
        f"the demo cannot use it ({error.strerror or error})",
        "free space there, or name another folder with --out",
    )
