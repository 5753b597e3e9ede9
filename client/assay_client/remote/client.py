"""The Python client of a campaign server; it returns plain dictionaries in the words of the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from assay_client.files import AnyPath, read_campaign
from assay_client.remote.bundles import submit_with_files
from assay_client.remote.channel import CONNECT_SECONDS
from assay_client.remote.connection import Connection
from assay_client.remote.documents import (
    campaign_document,
    document_of,
    request_document,
    run_detail_document,
    token_document,
)
from assay_client.remote.lab_documents import (
    agents_document,
    budgets_document,
    gpus_document,
    person_budget_document,
    queue_document,
)
from assay_core.identity.roles import Role
from assay_core.records.archive import LaunchesCursor
from assay_core.records.campaign import ReportFormat
from assay_core.records.identity import TokenAsked
from assay_core.records.lab import AuditAsked, BudgetChange, BudgetsAsked, RoleChange, role_named
from assay_core.records.runs import RunsAction, RunsRequest
from assay_sampling.errors import ParameterError

if TYPE_CHECKING:
    from assay_client.remote.streaming import StreamedLaunches
    from assay_report.model.report import Report

OnChanged = Callable[[list[dict[str, Any]]], None]


def _ignored(_changed: list[dict[str, Any]]) -> None:
    pass


class Client:
    """A client of a campaign server. Use it as a context manager, or call :meth:`close`.

    Args:
        server: "unix:PATH", or "HOST:PORT" after ``assay lab login``; None: $ASSAY_SERVER, else your own
            socket.
        connect_seconds: how long to wait for the server to answer at all.
    """

    def __init__(self, server: str | None = None, *, connect_seconds: float = CONNECT_SECONDS) -> None:
        self._connection = Connection(server, connect_seconds=connect_seconds)

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

        Paths in the file are relative to the file. The files of its bundles are sent before. Raises
        CampaignError naming line and field, also for a folder that cannot be a bundle.
        """
        return str(self.submit_document(campaign_file)["campaign_id"])

    def submit_document(self, campaign_file: AnyPath) -> dict[str, Any]:
        """Submit a file like :meth:`submit`; returns ``campaign_id`` and the planned ``runs_total``."""
        path = Path(campaign_file)
        return self.submit_text(read_campaign(path), path)

    def submit_text(self, text: str, path: Path, key: str = "") -> dict[str, Any]:
        """As :meth:`submit_document`, for the text of a campaign whose relative paths begin beside ``path``.

        All submissions with one ``key`` become one campaign; another text under a key raises CampaignError.
        """
        answer = submit_with_files(self._connection, text, path, key)
        return {"campaign_id": answer.campaign_id, "runs_total": answer.runs}

    def campaigns(self) -> list[dict[str, Any]]:
        """All campaigns of the server, without their runs."""
        campaigns: list[dict[str, Any]] = self.overview()["campaigns"]
        return campaigns

    def overview(self) -> dict[str, Any]:
        """``campaigns`` without their runs, slots that are ``resting``, files that were ``set_aside``, and
        ``spools`` of agents that are full or found damaged files."""
        answer = self._connection.campaigns()
        return {
            "campaigns": [campaign_document(c, listed=True) for c in answer.campaigns],
            "resting": [document_of(each) for each in answer.resting],
            "set_aside": [document_of(each) for each in answer.set_aside],
            "changed_records": [document_of(each) for each in answer.changed],
            "spools": [document_of(each) for each in answer.spools],
            "shortage": None if answer.shortage is None else asdict(answer.shortage),
        }

    def make_token(
        self,
        role: str,
        name: str = "",
        *,
        project: str = "",
        labels: Sequence[str] = (),
        uses: int = 1,
        valid_seconds: float = 3600.0,
    ) -> dict[str, Any]:
        """A join token, which only its receiver should see; ``role``: agent, viewer, submitter, ..."""
        if role not in set(Role):
            raise ParameterError("role", f"there is no {role!r}", f"use one of {', '.join(Role)}")
        request = TokenAsked(Role(role), name, project, tuple(labels), uses, round(1000 * valid_seconds))
        return {**token_document(self._connection.make_token(request)), "role": role}

    def web_link(self) -> dict[str, Any]:
        """``url``: opens the server's page in a browser as the caller, once; ``expires_at_ms``: Unix time."""
        return asdict(self._connection.web_link())

    def identities(self) -> dict[str, Any]:
        """``identities`` with their certificates, and the ``tokens`` that can still be used."""
        return document_of(self._connection.identities())

    def revoke(self, subject: str, *, tokens: bool = False) -> dict[str, Any]:
        """Revoke an identity (id or name), a token (id) or a key's certificates (serial number).

        ``tokens`` of the answer: open join tokens that it has joined with, and could come back with, unless
        ``tokens_withdrawn`` says that they were withdrawn, as asked.
        """
        revoked = self._connection.revoke(subject, tokens=tokens)
        return {
            "what": revoked.what,
            "id": revoked.id,
            "name": revoked.name,
            "tokens": list(revoked.tokens),
            "tokens_withdrawn": revoked.tokens_withdrawn,
        }

    def status(self, campaign_id: str) -> dict[str, Any]:
        """A campaign and its runs, now."""
        return campaign_document(self._connection.status(campaign_id))

    def summary(self, campaign_id: str) -> dict[str, Any]:
        """A campaign without its runs, now: cheap even if there are many runs."""
        return campaign_document(self._connection.status(campaign_id, with_runs=False), with_runs=False)

    def watch(self, campaign_id: str) -> Iterator[dict[str, Any]]:
        """The status now, and again after every change, until the campaign has ended.

        Only the last status has the campaign's runs: "runs" is empty before.
        """
        for status in self._connection.watch(campaign_id):
            yield self.status(campaign_id) if status.ended else campaign_document(status)

    def is_serving(self) -> bool:
        """Whether the server does its work; False while it ends, or cannot write its state."""
        return self._connection.is_serving()

    def agents(self) -> dict[str, Any]:
        """``agents``: every agent that the server knows, with its slots and what they run."""
        return agents_document(self._connection.agents())

    def gpus(self) -> dict[str, Any]:
        """``gpus``: every GPU of every agent, what it is, what it runs, and its health."""
        return gpus_document(self._connection.agents())

    def queue(self) -> dict[str, Any]:
        """``queue``: waiting runs by campaign and need: why they wait, who is ahead, and until when."""
        return queue_document(self._connection.queue())

    def pause(
        self, campaign_id: str, *, workload: str = "", run_id: str = "", at_once: bool = False
    ) -> dict[str, Any]:
        """Hold runs that wait; what is running ends its slice first, or is handed back ``at_once``.

        Of all runs of the campaign, of a workload, or of one run; so for the other requests. Each returns the
        campaign as :meth:`status`, with what changed under ``request``.
        """
        return self._ask(RunsAction.PAUSE, RunsRequest(campaign_id, workload, run_id, at_once))

    def resume(self, campaign_id: str, *, workload: str = "", run_id: str = "") -> dict[str, Any]:
        """Let paused runs go on."""
        return self._ask(RunsAction.RESUME, RunsRequest(campaign_id, workload, run_id))

    def cancel(self, campaign_id: str, *, workload: str = "", run_id: str = "") -> dict[str, Any]:
        """Cancel what has not finished yet; everything already stored stays."""
        return self._ask(RunsAction.CANCEL, RunsRequest(campaign_id, workload, run_id))

    def retry(self, campaign_id: str, *, workload: str = "", run_id: str = "") -> dict[str, Any]:
        """Re-queue failed and cancelled runs; a campaign that had ended goes on."""
        return self._ask(RunsAction.RETRY, RunsRequest(campaign_id, workload, run_id))

    def _ask(self, action: RunsAction, request: RunsRequest) -> dict[str, Any]:
        answer = self._connection.ask(action, request)
        return {**self.status(request.campaign_id), "request": request_document(action, request, answer)}

    def audit(self, *, identity: str = "", since_ms: int = 0, most: int = 100) -> dict[str, Any]:
        """The newest ``entries`` of the audit log: who changed what, when, from where; for admins.

        ``identity``: only those of this identity, by its id or its name then. ``since_ms``: Unix time.
        """
        entries: list[dict[str, Any]] = []
        before = 0
        while len(entries) < most:
            page = self._connection.audit(AuditAsked(before, most - len(entries), identity, since_ms))
            entries += [document_of(each) for each in page.entries]
            before = page.next
            if not before:
                break
        return {"entries": entries, "more": before > 0}

    def set_role(self, identity: str, role: str, *, project: str | None = None) -> dict[str, Any]:
        """Give a person (id or name) another role, and another project unless that is None; for admins."""
        answer = self._connection.set_role(RoleChange(identity, role_named(role), project))
        return {**asdict(answer), "role": str(answer.role)}

    def budgets(self, person: str = "") -> dict[str, Any]:
        """Budgets of GPU hours and what was used of them: of everybody, or of one person (id or name)."""
        return budgets_document(self._connection.budgets(BudgetsAsked(person)))

    def set_budget(self, person: str, gpu_hours: float | None) -> dict[str, Any]:
        """Give a person (id or name) a budget of GPU hours, None: none of their own; for operators."""
        return person_budget_document(self._connection.set_budget(BudgetChange(person, gpu_hours)))

    def run(self, run_id: str) -> dict[str, Any]:
        """A run with its attempts: command, environment, log, flags, files."""
        return run_detail_document(self._connection.run(run_id))

    def launches(
        self,
        campaign_id: str,
        run_id: str,
        *,
        columns: Sequence[str] = (),
        cursor: LaunchesCursor | None = None,
    ) -> Iterator[StreamedLaunches]:
        """The published launches of a run as record batches; :mod:`assay_client.remote.streaming`."""
        from assay_client.remote.streaming import stream_launches  # noqa: PLC0415 - Arrow, which verbs do not need

        return stream_launches(self._connection, campaign_id, run_id, columns=columns, cursor=cursor)

    def report(self, campaign_id: str, *, on_changed: OnChanged = _ignored) -> Report:
        """The report of an ended campaign; ``on_changed`` as in :meth:`report_bytes`.

        Raises InputError if the server is of a newer release and this one cannot read its report.
        """
        data = self.report_bytes(campaign_id, "json", on_changed=on_changed)
        from assay_report.reading import parse_report  # noqa: PLC0415 - Arrow, which most verbs do not need

        return parse_report(data, f"report of {campaign_id}")

    def report_bytes(
        self, campaign_id: str, form: Literal["json", "html"], *, on_changed: OnChanged = _ignored
    ) -> bytes:
        """The report of an ended campaign as the server wrote it: "json" or a self-contained "html" page.

        If records of the campaign have changed since the report was made, ``on_changed`` is called with their
        ``run_id``, ``file`` and ``what`` ("missing", "changed", "unreadable").
        """
        data, changed = self._connection.report(campaign_id, ReportFormat(form))
        if changed:
            on_changed([document_of(each) for each in changed])
        return data
