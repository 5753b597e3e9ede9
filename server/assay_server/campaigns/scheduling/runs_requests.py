"""Requests of people about runs: pause, resume, cancel and retry, carried out in pieces.

A request is written down with what concerns its campaign as a whole; then each piece changes some of its
runs in a transaction of its own, so that no request about 100,000 runs keeps the heartbeats of others
waiting. A crash between two pieces loses nothing: the next server carries on. Until a request is carried
out its campaign does not end, however many of its runs have.

| request | waiting or running runs | done runs | failed and cancelled runs |
|---|---|---|---|
| pause | held; what runs ends its slice, or is handed back at once | refused | refused |
| resume | go on | refused | refused |
| cancel | cancelled with their attempts | stay | stay |
| retry | refused | refused | wait again, with all their tries |

A request about several runs changes those that it can change and is refused only if there are none.
"""

from __future__ import annotations

from dataclasses import replace

from assay_core.records.campaign import ENDED_CAMPAIGNS, AttemptState, CampaignState, RunState
from assay_core.records.failure import failure
from assay_core.records.runs import RunsAction, RunsRequest
from assay_sampling.errors import ParameterError, RefusedError
from assay_sampling.running.failures import FailureClass
from assay_server.campaigns.errors import UnknownThingError, known_campaign
from assay_server.campaigns.scheduling.transitions import Transitions
from assay_server.store.model import OPEN_RUNS, Campaign, PendingRequest, SliceState

RETRYABLE_RUNS = (RunState.FAILED, RunState.CANCELLED)
# An attempt that is being published has ended its slice: there is nothing to hand back.
_HANDED_BACK = (AttemptState.LEASED, AttemptState.EXPIRED)


class RunsRequests(Transitions):
    """Accepts requests of people about runs, and carries them out piece by piece."""

    def ask(self, action: RunsAction, request: RunsRequest) -> PendingRequest:
        """Accept a request and write it down; :meth:`carry_on` does the rest.

        Raises UnknownThingError for a campaign, workload or run that the server does not know, RefusedError
        if the request applies to none of the runs, ParameterError for both a workload and a run.
        """
        campaign = known_campaign(self.store.campaign(request.campaign_id), request.campaign_id)
        counts = self._counts(request)
        accept = {
            RunsAction.PAUSE: self._pause,
            RunsAction.RESUME: self._resume,
            RunsAction.CANCEL: self._cancel,
            RunsAction.RETRY: self._retry,
        }[action]
        changed = accept(campaign, request, counts)
        self.effects.campaigns.add(campaign.campaign_id)
        return self.store.add_request(PendingRequest(0, action, request, self.now_ms, runs_changed=changed))

    def _counts(self, request: RunsRequest) -> dict[RunState, int]:
        """How many of the requested runs are in each state; raises if the request names none."""
        if request.workload and request.run_id:
            raise ParameterError(
                "--run", "a request is about a workload or about a run, not both", "leave one of them out"
            )
        counts = self.store.requested_counts(request)
        if not counts and request.run_id:
            cause = f"campaign {request.campaign_id} has no such run"
            remedy = f"see its runs: assay lab status {request.campaign_id}"
            raise UnknownThingError(f"run {request.run_id!r}", cause, remedy)
        if not counts and request.workload:
            cause = f"campaign {request.campaign_id} has no such workload"
            remedy = f"see its workloads: assay lab status {request.campaign_id}"
            raise UnknownThingError(f"workload {request.workload!r}", cause, remedy)
        return counts

    def _pause(self, campaign: Campaign, request: RunsRequest, counts: dict[RunState, int]) -> int:
        _require_unended(campaign, request, counts)
        if not _is_whole(request) or campaign.paused:
            return 0
        self.store.save_campaign(replace(campaign, paused=True))
        return _open(counts)

    def _resume(self, campaign: Campaign, request: RunsRequest, counts: dict[RunState, int]) -> int:
        _require_unended(campaign, request, counts)
        if not campaign.paused:
            return 0
        if not _is_whole(request):
            raise RefusedError(
                _subject(request),
                f"the whole campaign {campaign.campaign_id} is paused",
                f"let all of it go on: assay lab resume {campaign.campaign_id}; then pause the rest",
            )
        self.store.save_campaign(replace(campaign, paused=False))
        return _open(counts) - self.store.paused_runs([campaign.campaign_id]).get(campaign.campaign_id, 0)

    def _cancel(self, campaign: Campaign, request: RunsRequest, _counts: dict[RunState, int]) -> int:
        if _is_whole(request) and campaign.state not in ENDED_CAMPAIGNS:
            # From now on no run of it is leased, and what ends does not start its analysis.
            self.store.save_campaign(
                replace(campaign, state=CampaignState.CANCELLED, paused=False, ended_at_ms=self.now_ms)
            )
        return 0

    def _retry(self, campaign: Campaign, request: RunsRequest, counts: dict[RunState, int]) -> int:
        retryable = sum(counts.get(state, 0) for state in RETRYABLE_RUNS)
        if not retryable and not _analysis_failed(campaign, request):
            held = [f"{count:,} {state}" for state, count in sorted(counts.items())]
            cause = f"nothing of it failed or was cancelled ({', '.join(held) or 'it has no runs'})"
            remedy = f"see what it does: assay lab status {campaign.campaign_id}"
            raise RefusedError(_subject(request), cause, remedy)
        self.store.save_campaign(
            replace(
                campaign,
                state=CampaignState.RUNNING,
                ended_at_ms=0,
                failure=None,
                has_report=False,
                retried=campaign.retried + 1,
            )
        )
        return 0

    def carry_on(self, request: PendingRequest, most: int) -> PendingRequest | None:
        """Carry out the next piece of a request, at most ``most`` of its runs or attempts.

        None: it was carried out by another thread. The last piece ends it: the store then has no such pending
        request, and the returned one has its final counts.
        """
        pending = self.store.pending_requests(request.asked.campaign_id)
        now = next((each for each in pending if each.request_id == request.request_id), None)
        if now is None:
            return None
        piece = self._next_runs(now, most)
        if piece:
            ended = self._change(now, [run_id for _, run_id in piece])
            now = replace(
                now,
                next_ordinal=piece[-1][0] + 1,
                runs_changed=now.runs_changed + len(piece),
                attempts_ended=now.attempts_ended + ended,
            )
        handed_back = self._hand_back(now, most - len(piece))
        now = replace(now, attempts_ended=now.attempts_ended + handed_back)
        if len(piece) + handed_back == most:
            self.store.save_request(now)
            return now
        self.store.end_request(now.request_id)
        if now.action in (RunsAction.RESUME, RunsAction.RETRY):
            self.effects.work = True
        self.advance(now.asked.campaign_id)
        return now

    def _next_runs(self, request: PendingRequest, most: int) -> list[tuple[int, str]]:
        runs_request, action = request.asked, request.action
        if action is RunsAction.PAUSE and _is_whole(runs_request):
            return []  # the campaign's own mark holds them
        states = RETRYABLE_RUNS if action is RunsAction.RETRY else OPEN_RUNS
        paused = {RunsAction.PAUSE: False, RunsAction.RESUME: True}.get(action)
        return self.store.requested_runs(
            runs_request, states, paused=paused, first=request.next_ordinal, most=most
        )

    def _change(self, request: PendingRequest, run_ids: list[str]) -> int:
        """Change these runs as requested; returns how many attempts this ended."""
        ended = 0
        if request.action is RunsAction.RETRY:
            self.store.retry_runs(run_ids)
        elif request.action is RunsAction.CANCEL:
            ended = self.cancel_attempts(run_ids)
            self.store.cancel_runs(run_ids)
            # Detailed runs that wait for a light run that was cancelled alone begin at the first launch.
            light = self.store.run(request.asked.run_id) if request.asked.run_id else None
            if light is not None:
                self.start_detailed(light, None)
        else:
            self.store.pause_runs(run_ids, request.action is RunsAction.PAUSE)
        self.effects.campaigns.add(request.asked.campaign_id)
        return ended

    def _hand_back(self, request: PendingRequest, most: int) -> int:
        """End running attempts of runs that are paused at once; their slices wait."""
        if request.action is not RunsAction.PAUSE or not request.asked.at_once or not most:
            return 0
        attempts = self.store.requested_attempts(request.asked, _HANDED_BACK)[:most]
        cause = "a person paused it at once, so it was handed back"
        remedy = "nothing: its slice waits until it is resumed"
        for attempt in attempts:
            why = failure(FailureClass.CANCELLED, f"run {attempt.key.run_id}", cause, remedy)
            self.end_attempt(attempt, AttemptState.CANCELLED, why)
            piece = self.slice_of(attempt.key)
            if piece.state is SliceState.LEASED:
                self.set_slice(replace(piece, state=SliceState.WAITING, not_before_ms=0))
        return len(attempts)


def _is_whole(request: RunsRequest) -> bool:
    return not request.workload and not request.run_id


def _subject(request: RunsRequest) -> str:
    if request.run_id:
        return f"run {request.run_id}"
    whole = f"campaign {request.campaign_id}"
    return f"workload {request.workload} of {whole}" if request.workload else whole


def _open(counts: dict[RunState, int]) -> int:
    return sum(counts.get(state, 0) for state in OPEN_RUNS)


def _require_unended(campaign: Campaign, request: RunsRequest, counts: dict[RunState, int]) -> None:
    """Raise RefusedError if there is nothing to pause or resume."""
    if campaign.state in ENDED_CAMPAIGNS:
        subject, state = f"campaign {campaign.campaign_id}", str(campaign.state)
    elif not _is_whole(request) and not _open(counts):
        subject, state = _subject(request), " or ".join(sorted(counts))
    else:
        return
    remedy = f"failed and cancelled runs wait again with: assay lab retry {campaign.campaign_id}"
    raise RefusedError(subject, f"it has ended ({state})", remedy)


def _analysis_failed(campaign: Campaign, request: RunsRequest) -> bool:
    """Whether all of its runs succeeded and only its analysis failed, which can be made again."""
    return _is_whole(request) and campaign.state is CampaignState.FAILED and not campaign.has_report
