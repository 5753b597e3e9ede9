"""What a campaign came to: its last status, its report, and where the report was written."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay_client.client import Client
from assay_client.files import write_atomically
from assay_sampling.errors import CampaignError, RefusedError

Status = Mapping[str, Any]
Follow = Callable[[Iterable[Status]], Status]


@dataclass(frozen=True)
class Outcome:
    """An ended campaign. ``report`` is None where it ended without one; ``files`` has "json" and "html"."""

    status: Status
    report: Mapping[str, Any] | None
    files: Mapping[str, Path]

    def to_dict(self) -> dict[str, Any]:
        return {
            "campaign": self.status,
            "report": self.report,
            "files": {form: str(path) for form, path in self.files.items()},
        }


def last_of(statuses: Iterable[Status]) -> Status:
    """Wait for the last status and show nothing: how a campaign is followed where nobody looks on."""
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

    Where it is interrupted, the campaign is cancelled before the interruption goes on, unless it is to be
    taken up again later. ``private``: the directory is in a state folder, and nobody else's to read.
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
    return Outcome(status, json.loads(pages["json"]), files)
