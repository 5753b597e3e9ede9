"""A campaign service with scripted answers, on a real socket: what the client does is what is tested."""

from __future__ import annotations

import atexit
import functools
import itertools
import json
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc

from assay_core.records.campaign import ReportRequest
from assay_protos import campaign_pb2, campaign_pb2_grpc, lab_pb2, lab_pb2_grpc


def status(state: str, done: int = 0, **more: Any) -> campaign_pb2.CampaignStatus:
    """A campaign of two runs, ``done`` of which are done."""
    runs = [
        campaign_pb2.RunStatus(
            run_id=f"c-1.{index:04d}",
            workload="w",
            device_kind="V100",
            level="LEVEL_LIGHT",
            state="RUN_STATE_DONE" if index < done else "RUN_STATE_WAITING",
        )
        for index in range(2)
    ]
    return campaign_pb2.CampaignStatus(
        campaign_id="c-1",
        name="c",
        state=f"CAMPAIGN_STATE_{state.upper()}",
        runs=runs,
        runs_total=2,
        runs_done=done,
        **more,
    )


def summed(status: campaign_pb2.CampaignStatus) -> campaign_pb2.CampaignStatus:
    """A copy with what the server counts over all runs."""
    told = campaign_pb2.CampaignStatus()
    told.CopyFrom(status)
    told.runs_running = sum(run.state == campaign_pb2.RUN_STATE_RUNNING for run in told.runs)
    told.slices = sum(run.slices for run in told.runs)
    told.slices_done = sum(run.slices_done for run in told.runs)
    told.retries = sum(run.retries for run in told.runs)
    for run in told.runs:
        if run.waiting_for:
            told.waiting.add(
                reason=run.waiting_for, first_run_id=run.run_id, runs=1, kind="WAIT_KIND_NO_AGENT"
            )
    return told


@dataclass
class Script:
    """What the server answers; a test replaces what it is about."""

    submit: Callable[[campaign_pb2.SubmitRequest], campaign_pb2.SubmitResponse] = lambda _: (
        campaign_pb2.SubmitResponse(campaign_id="c-1", runs=2)
    )
    status: Callable[[str], campaign_pb2.CampaignStatus] = lambda _: status("running", 1)
    cancel: Callable[[str], campaign_pb2.CampaignStatus] = lambda _: status("cancelled", 1)
    # The answers to who follows a campaign, one after the other.
    watch: Callable[[str], Iterator[campaign_pb2.CampaignStatus]] = lambda _: iter([status("done", 2)])
    run: Callable[[str], campaign_pb2.RunDetail] = lambda _: campaign_pb2.RunDetail(
        run=status("done", 1).runs[0]
    )
    report: Callable[[str, str], Iterator[bytes]] = lambda _, form: iter([b"{}" if form == "json" else b""])
    # A request about runs; None: a cancel answers with the status of ``cancel``.
    asked: Callable[[campaign_pb2.RunsRequest], campaign_pb2.RunsAnswer] | None = None
    agents: lab_pb2.LabAgents = field(default_factory=lab_pb2.LabAgents)
    queue: lab_pb2.LabQueue = field(default_factory=lab_pb2.LabQueue)
    changed: list[campaign_pb2.ChangedFile] = field(default_factory=list)
    set_aside: list[campaign_pb2.SetAside] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)


class Refusal(Exception):
    """Makes the fake server fail a call as a real one does: a status and trailing metadata."""

    def __init__(self, code: grpc.StatusCode, details: str, document: Any = None, raw: bytes = b"") -> None:
        super().__init__(details)
        self.code = code
        self.details = details
        self.metadata = raw or (json.dumps(document).encode() if document is not None else b"")


class _Lab(lab_pb2_grpc.LabServiceServicer):
    def __init__(self, script: Script) -> None:
        self._script = script

    def ListAgents(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._script.agents

    def GetQueue(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._script.queue


class _Servicer(campaign_pb2_grpc.CampaignServiceServicer):
    def __init__(self, script: Script) -> None:
        self._script = script
        self._ended: dict[str, campaign_pb2.CampaignStatus] = {}
        self._followed_by: dict[str, Iterator[campaign_pb2.CampaignStatus]] = {}

    def _answer(self, context: grpc.ServicerContext, request: Any, call: Callable[[], Any]) -> Any:
        self._script.requests.append(request)
        try:
            return call()
        except Refusal as refusal:
            _abort(context, refusal)

    def Submit(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._answer(context, request, lambda: self._script.submit(request))

    def ListCampaigns(self, request: Any, context: grpc.ServicerContext) -> Any:
        answer = campaign_pb2.ListCampaignsResponse(
            campaigns=[self._script.status("c-1")], set_aside=self._script.set_aside
        )
        return self._answer(context, request, lambda: answer)

    def GetStatus(self, request: Any, context: grpc.ServicerContext) -> Any:
        if request.following:
            return self._answer(context, request, lambda: self._followed(request.campaign_id))
        # What was told last to who follows is what a status is then.
        status = self._ended.get(request.campaign_id)
        return self._answer(
            context, request, lambda: summed(status or self._script.status(request.campaign_id))
        )

    def _followed(self, campaign_id: str) -> campaign_pb2.CampaignStatus:
        """The next status of the script for who follows a campaign, without runs."""
        statuses = self._followed_by.setdefault(campaign_id, self._script.watch(campaign_id))
        told = next(statuses)
        if told.state >= campaign_pb2.CAMPAIGN_STATE_DONE:  # or failed, or cancelled
            self._ended[campaign_id] = told
            del self._followed_by[campaign_id]
        without_runs = summed(told)
        del without_runs.runs[:]
        return without_runs

    def CancelRuns(self, request: Any, context: grpc.ServicerContext) -> Any:
        def cancelled() -> Any:
            if self._script.asked is not None:
                return self._script.asked(request)
            status = self._script.cancel(request.campaign_id)
            self._ended[request.campaign_id] = status
            return campaign_pb2.RunsAnswer(campaign=status, runs_changed=1)

        return self._answer(context, request, cancelled)

    def Pause(self, request: Any, context: grpc.ServicerContext) -> Any:
        assert self._script.asked is not None
        return self._answer(context, request, partial(self._script.asked, request))

    Resume = Retry = Pause

    def GetRun(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._answer(context, request, lambda: self._script.run(request.run_id))

    def GetReport(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        self._script.requests.append(request)
        try:
            for data in self._script.report(request.campaign_id, str(ReportRequest.from_proto(request).form)):
                yield campaign_pb2.ReportChunk(data=data)
            if self._script.changed:
                yield campaign_pb2.ReportChunk(changed=self._script.changed)
        except Refusal as refusal:
            _abort(context, refusal)


def _abort(context: grpc.ServicerContext, refusal: Refusal) -> None:
    if refusal.metadata:
        context.set_trailing_metadata((("assay-error-bin", refusal.metadata),))
    context.abort(refusal.code, refusal.details)


_NUMBERS = itertools.count()


@functools.cache
def _folder() -> str:
    """A folder for sockets, of this process; pytest's own folders have too long names."""
    folder = tempfile.mkdtemp(prefix="assay-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class FakeServer:
    """The script behind a socket; it can go away and come back at the same address."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._lock = threading.Lock()
        self._server: grpc.Server | None = None
        self.address = f"unix:{_folder()}/{next(_NUMBERS)}.sock"
        self.start()

    def start(self) -> None:
        server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        campaign_pb2_grpc.add_CampaignServiceServicer_to_server(_Servicer(self.script), server)
        lab_pb2_grpc.add_LabServiceServicer_to_server(_Lab(self.script), server)
        assert server.add_insecure_port(self.address)
        server.start()
        with self._lock:
            self._server = server

    def stop(self) -> None:
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.stop(None).wait()
