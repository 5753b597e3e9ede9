"""The outcome of a campaign: its last status, its report, and where the report was written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay_client.files import write_atomically
from assay_client.remote.client import Client
from assay_sampling.errors import CampaignError, RefusedError

if TYPE_CHECKING:
    from assay_report.model.report import Report

Status = Mapping[str, Any]
Follow = Callable[[Iterable[Status]], Status]


@dataclass(frozen=True)
class Outcome:
    """An ended campaign. ``report`` is None if it ended without one; ``files`` has "json" and "html"."""

    status: Status
    report: Report | None
    files: Mapping[str, Path]

    def to_dict(self) -> dict[str, Any]:
        return {
            "campaign": self.status,
            "report": self.report and self.report.to_document(),
            "files": {form: str(path) for form, path in self.files.items()},
        }


def last_of(statuses: Iterable[Status]) -> Status:
    """Wait for the last status and show nothing, for callers without a display."""
    last: Status = {}
    for status in statuses:
        last = status
    return last


def see_through(
    client: Client,
    campaign_id: str,
    directory: Path,
    follow: Follow,
    *,
    cancel_when_interrupted: bool = True,
    private: bool = False,
) -> Outcome:
    """Follow a campaign to its end and write its report, report.json and report.html, into ``directory``.

    On an interruption the campaign is cancelled before the interruption is raised again, unless it will be
    continued later. ``private``: the directory is in a state folder, and only this user may read it.
    """
    try:
        status = follow(client.watch(campaign_id))
    except (KeyboardInterrupt, SystemExit):
        if cancel_when_interrupted:
            with contextlib.suppress(Exception):
                client.cancel(campaign_id)
        raise
    try:
        pages = {form: client.report_bytes(campaign_id, form) for form in ("json", "html")}
    except (CampaignError, RefusedError):
        if status["state"] == "done":
            raise
        return Outcome(status, None, {})
    files = {form: directory / f"report.{form}" for form in pages}
    for form, path in files.items():
        write_atomically(path, pages[form], private=private)
    from assay_report.reading import parse_report  # noqa: PLC0415 - Arrow, which most verbs do not need

    return Outcome(status, parse_report(pages["json"], f"report of {campaign_id}"), files)
