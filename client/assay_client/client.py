"""A server of campaigns as Python sees it: plain dictionaries in the words of the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from assay_client.connection import ENDED_STATES, Connection
from assay_client.documents import (
    campaign_document,
    changed_document,
    rest_documents,
    run_detail_document,
    set_aside_document,
)
from assay_client.files import AnyPath, read_campaign
from assay_sampling.errors import CampaignError

OnChanged = Callable[[list[dict[str, Any]]], None]


def _ignored(_changed: list[dict[str, Any]]) -> None:
    pass


class Client:
    """A server of campaigns. Use it as a context manager, or call :meth:`close`.

    Args:
        server: "unix:PATH", or "HOST:PORT" on this machine; None: $ASSAY_SERVER, else this user's own socket.
    """

    def __init__(self, server: str | None = None) -> None:
        self._connection = Connection(server)

    @property
    def address(self) -> str:
        return self._connection.address

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def submit(self, campaign_file: AnyPath) -> str:
        """Hand a campaign file to the server and return the campaign's id.

        Paths in the file are relative to the file. Raises CampaignError naming line and field.
        """
        return str(self.submit_document(campaign_file)["campaign_id"])

    def submit_document(self, campaign_file: AnyPath) -> dict[str, Any]:
        """The same, with the number of runs that were planned: ``campaign_id``, ``runs_total``."""
        path = Path(campaign_file)
        text = read_campaign(path)
        answer = self._connection.submit(text, str(path), str(path.resolve().parent))
        return {"campaign_id": answer.campaign_id, "runs_total": answer.runs}

    def campaigns(self) -> list[dict[str, Any]]:
        """All campaigns of the server, without their runs."""
        campaigns: list[dict[str, Any]] = self.overview()["campaigns"]
        return campaigns

    def overview(self) -> dict[str, Any]:
        """``campaigns`` without their runs, slots that are ``resting``, and files that were ``set_aside``."""
        answer = self._connection.campaigns()
        return {
            "campaigns": [campaign_document(c, listed=True) for c in answer.campaigns],
            "resting": rest_documents(answer.resting),
            "set_aside": [set_aside_document(each) for each in answer.set_aside],
            "changed_records": [changed_document(each) for each in answer.changed],
        }

    def status(self, campaign_id: str) -> dict[str, Any]:
        """A campaign and its runs, now."""
        return campaign_document(self._connection.status(campaign_id))

    def summary(self, campaign_id: str) -> dict[str, Any]:
        """A campaign without its runs, now: cheap, however many there are."""
        return campaign_document(self._connection.status(campaign_id, with_runs=False), with_runs=False)

    def watch(self, campaign_id: str) -> Iterator[dict[str, Any]]:
        """The status now, and again after every change, until the campaign has ended.

        Only the last has the campaign's runs: "runs" is empty before.
        """
        for status in self._connection.watch(campaign_id):
            ended = status.state in ENDED_STATES
            yield self.status(campaign_id) if ended else campaign_document(status)

    def cancel(self, campaign_id: str) -> dict[str, Any]:
        """Cancel what has not finished yet; what was stored stays."""
        return campaign_document(self._connection.cancel(campaign_id))

    def run(self, run_id: str) -> dict[str, Any]:
        """A run with its attempts: command, environment, log, flags, files."""
        return run_detail_document(self._connection.run(run_id))

    def report(self, campaign_id: str, *, on_changed: OnChanged = _ignored) -> dict[str, Any]:
        """The report of an ended campaign as a document; ``on_changed`` as in :meth:`report_bytes`."""
        document = json.loads(self.report_bytes(campaign_id, "json", on_changed=on_changed))
        if not isinstance(document, dict):
            raise CampaignError(
                campaign_id,
                "the server's report is not a JSON object",
                "run the same release of Assay on client and server",
            )
        return document

    def report_bytes(
        self, campaign_id: str, form: Literal["json", "html"], *, on_changed: OnChanged = _ignored
    ) -> bytes:
        """The report of an ended campaign as the server wrote it: "json" or a self-contained "html" page.

        ``on_changed`` is called where records of the campaign are not what the report was made of any more,
        with their ``run_id``, ``file`` and ``what`` ("missing", "changed", "unreadable").
        """
        data, changed = self._connection.report(campaign_id, form)
        if changed:
            on_changed([changed_document(each) for each in changed])
        return data
