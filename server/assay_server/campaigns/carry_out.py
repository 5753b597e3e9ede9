"""Carries out requests of people about runs, piece by piece, with a rest after each piece."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from assay_core.records.campaign import AttemptState, CampaignState, RunState
from assay_core.records.runs import RunsAction, RunsRequest
from assay_sampling.errors import StorageError
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.slicing.by_light import plan_from
from assay_server.campaigns.slicing.reslice import awaited_lights
from assay_server.store.model import PendingRequest
from assay_server.store.transactions import repeated

# Runs of a piece: its transaction takes some milliseconds, which is as long as a heartbeat waits for it.
PIECE_RUNS = 500
# The rest after a piece, as a multiple of its time: others get the writer's lock between two pieces.
_REST = 1.0
_LEAST_REST_SECONDS = 0.002


class RequestRunner:
    """Carries out requests one after another. Thread-safe.

    Whoever asks waits until the request is carried out. :meth:`resume` carries on what a crash, an end of the
    server or a full disk interrupted.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        piece_runs: int = PIECE_RUNS,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        self._coordinator = coordinator
        self._piece_runs = piece_runs
        self._rest = rest
        # One request at a time: two about the same runs would each undo half of the other.
        self._lock = threading.Lock()
        self._closed = False
        self._looked_for_awaiting = False

    def close(self) -> None:
        """Begin no further piece; the next server carries on."""
        self._closed = True

    @repeated
    def ask(self, action: RunsAction, runs_request: RunsRequest) -> PendingRequest:
        """Carry out a request; returns it with its counts. Raises what the request is refused with."""
        with self._lock:
            self._carry_on_all()
            with self._coordinator.schedule() as schedule:
                request = schedule.ask(action, runs_request)
            return self._carry_on(request)

    def resume(self) -> None:
        """Carry on interrupted requests; returns at once if one is being carried out."""
        if self._lock.acquire(blocking=False):
            try:
                self._carry_on_all()
                if not self._looked_for_awaiting:
                    # A crash may have come between a retry and the slices of the runs it brought back.
                    with self._coordinator.snapshot() as store:
                        campaigns = store.campaigns()
                    for campaign in campaigns:
                        if campaign.state is CampaignState.RUNNING:
                            self._start_awaiting(campaign.campaign_id)
                    self._looked_for_awaiting = True
            finally:
                self._lock.release()

    def _carry_on_all(self) -> None:
        with self._coordinator.snapshot() as store:
            pending = store.pending_requests()
        for request in pending:
            self._carry_on(request)

    @repeated
    def _next_piece(self, request: PendingRequest) -> tuple[PendingRequest | None, list[PendingRequest]]:
        with self._coordinator.schedule() as schedule:
            now = schedule.carry_on(request, self._piece_runs)
            return now, schedule.store.pending_requests(request.asked.campaign_id)

    def _carry_on(self, request: PendingRequest) -> PendingRequest:
        while True:
            if self._closed:
                cause = "it ends; its next start carries on what is left of the request"
                raise StorageError("server", cause, "start it again, then see: assay lab status")
            began = time.monotonic()
            now, left = self._next_piece(request)
            request = now or request
            if request.request_id not in [each.request_id for each in left]:
                break
            self._rest(max(_LEAST_REST_SECONDS, _REST * (time.monotonic() - began)))
        if request.action is RunsAction.RETRY:
            self._start_awaiting(request.asked.campaign_id)
        return request

    def _start_awaiting(self, campaign_id: str) -> None:
        """Give detailed runs that were tried again their slices if their light run has already ended."""
        with self._coordinator.snapshot() as store:
            lights = awaited_lights(store, campaign_id)
        for light in lights:
            with self._coordinator.snapshot() as store:
                plan = None
                is_done = light.state is RunState.DONE
                files = [piece.file for piece in store.slices(light.run_id) if piece.file and is_done]
                for file in files[:1]:
                    with self._coordinator.records.reading(file) as path:
                        plan = plan_from(store, light, path)
            with self._coordinator.schedule() as schedule:
                schedule.start_detailed(light, plan)

    def running(self, runs_request: RunsRequest) -> int:
        """How many attempts of the requested runs are running."""
        with self._coordinator.snapshot() as store:
            return len(store.requested_attempts(runs_request, (AttemptState.LEASED, AttemptState.PUBLISHING)))
