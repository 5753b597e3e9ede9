"""Submitting a campaign: read, planned and stored as one, or refused."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from assay_core.records.campaign import CampaignState, Submission, Submitted
from assay_core.records.upload import Bundle
from assay_sampling.errors import CampaignError, ParameterError
from assay_server.access.audit import note_nothing_new, note_subject
from assay_server.access.caller import Caller, current_caller
from assay_server.access.rights import project_for, require_priority
from assay_server.campaign_file.compiled import CompiledCampaign
from assay_server.campaign_file.reading import compile_campaign, read_campaign_file
from assay_server.campaign_file.spec import Campaign as CampaignSpec
from assay_server.campaigns.arrivals import ORDINARY, OvertakenError, Pace, bring_in, turn
from assay_server.campaigns.bundles.named import folders_named, sent_bundles
from assay_server.campaigns.planning.plan import Plan, next_number, plan_campaign
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.slicing.learned import RECENT_SLICES, SliceCosts
from assay_server.store.model import Campaign
from assay_server.store.sql import SqlTransaction
from assay_server.store.transactions import repeated

_LONGEST_KEY = 100
# Each run keeps the folder; messages repeat the name of the file.
_LONGEST_PATH = 1024


@repeated
def submit(coordinator: Coordinator, submission: Submission, pace: Pace = ORDINARY) -> Submitted:
    """Plan and store a campaign of the caller's, or tell which folders' files must be sent first.

    A submission that its caller sent before, with the same key, is answered with the campaign that it
    became. A large campaign is stored piece by piece (:mod:`assay_server.campaigns.arrivals`). Raises
    CampaignError naming line and field of each fault of the file, NotPermittedError if it names a
    project of others or a priority that the caller may not give, ParameterError for a key or path that is
    too long, and StorageError if there is no room for new work.
    """
    if coordinator.capacity is not None:
        coordinator.capacity.require()
    if len(submission.key) > _LONGEST_KEY:
        cause = f"it has {len(submission.key):,} characters; at most {_LONGEST_KEY} are taken"
        raise ParameterError("key of the submission", cause, "give a shorter one")
    for name, path in (("folder", submission.base_directory), ("name", submission.file_name)):
        if len(path) > _LONGEST_PATH:
            cause = f"it has {len(path):,} characters; at most {_LONGEST_PATH:,} are taken"
            raise ParameterError(f"{name} of the campaign file", cause, "submit it from another folder")
    file = read_campaign_file(submission.text, submission.file_name or "campaign file")
    spec = file.campaign
    caller = current_caller()
    project = project_for(caller, spec.project)
    require_priority(caller, spec.priority)
    with coordinator.snapshot() as store:
        before = _sent_before(store, submission, caller)
    if before is not None:
        return before
    folders = folders_named(file, coordinator.bundles)
    if folders and submission.asks_for_folders:
        note_nothing_new()
        return Submitted("", 0, folders)
    sent = sent_bundles(folders, submission.bundles, coordinator.bundles, submission.file_name)
    request = _Asked(submission, spec, sent, compile_campaign(spec, sent.values()), caller, project)
    return _stored(coordinator, request, pace)


@dataclass(frozen=True)
class _Asked:
    """A submission that was read and is allowed; ``bundles``: by folder."""

    submission: Submission
    spec: CampaignSpec
    bundles: dict[str, Bundle]
    compiled: CompiledCampaign
    caller: Caller | None
    project: str

    def planned(self, store: SqlTransaction) -> _Planned:
        """Its plan, under the number that it gets if no other campaign of its name comes first."""
        spec, sent = self.spec, self.submission
        number = next_number(store.campaign_numbers(spec.campaign))
        campaign_id = f"{spec.campaign}-{number}"
        costs = SliceCosts(store.slice_times(RECENT_SLICES) if spec.live_workloads else ())
        given = (spec, campaign_id, sent.base_directory, sent.file_name, costs)
        return _Planned(number, campaign_id, plan_campaign(*given, bundles=self.bundles))

    def campaign(self, planned: _Planned, now_ms: int) -> Campaign:
        """Its campaign."""
        return Campaign(
            campaign_id=planned.campaign_id,
            name=self.spec.campaign,
            number=planned.number,
            synthetic=self.spec.synthetic,
            state=CampaignState.RUNNING,
            text=self.submission.text,
            file_name=self.submission.file_name,
            base_directory=self.submission.base_directory,
            compiled=self.compiled,
            created_at_ms=now_ms,
            owner=_owner(self.caller),
            owner_name="" if self.caller is None else self.caller.name,
            project=self.project,
            submission=self.submission.key,
        )


@dataclass(frozen=True)
class _Planned:
    number: int
    campaign_id: str
    plan: Plan


class _NumberTakenError(Exception):
    """Another campaign of that name came first."""


def _stored(coordinator: Coordinator, request: _Asked, pace: Pace) -> Submitted:
    """The campaign, stored; planned again each time another one of its name or its key comes first."""
    while True:
        with coordinator.snapshot() as store:
            planned = request.planned(store)  # others do not wait for this
        campaign = request.campaign(planned, coordinator.clock.now_ms())
        note_subject(f"campaign {campaign.campaign_id}", f"{len(planned.plan.runs)} runs")
        store_it = _brought_in if pace.is_large(planned.plan) else _added
        with contextlib.suppress(_NumberTakenError, OvertakenError):
            return store_it(coordinator, request, campaign, planned.plan, pace)


def _added(
    coordinator: Coordinator, request: _Asked, campaign: Campaign, plan: Plan, _pace: Pace
) -> Submitted:
    """A campaign stored in one transaction."""
    with coordinator.schedule() as schedule:
        before = _sent_before(schedule.store, request.submission, request.caller)
        if before is not None:
            return before
        if campaign.number != next_number(schedule.store.campaign_numbers(campaign.name)):
            raise _NumberTakenError
        schedule.add_campaign(campaign, plan.runs, plan.slices)
    return Submitted(campaign.campaign_id, len(plan.runs))


def _brought_in(
    coordinator: Coordinator, request: _Asked, campaign: Campaign, plan: Plan, pace: Pace
) -> Submitted:
    """A campaign stored piece by piece."""
    with turn(coordinator, pace):
        with coordinator.snapshot() as store:
            before = _sent_before(store, request.submission, request.caller)
        if before is not None:
            return before
        if not bring_in(coordinator, campaign, plan, pace):
            raise _NumberTakenError
    return Submitted(campaign.campaign_id, len(plan.runs))


def _sent_before(store: SqlTransaction, submission: Submission, caller: Caller | None) -> Submitted | None:
    """The campaign that the caller's earlier submission with this key became; None: there is none.

    Raises CampaignError if that was another file.
    """
    campaign_id = store.submitted_as(_owner(caller), submission.key) if submission.key else None
    campaign = None if campaign_id is None else store.campaign(campaign_id)
    if campaign is None:
        return None
    if campaign.text != submission.text:
        cause = f"its key {submission.key!r} is that of {campaign.campaign_id}, which was another file"
        raise CampaignError(
            submission.file_name or "campaign file", cause, "submit it under a key of its own"
        )
    note_nothing_new()
    return Submitted(campaign.campaign_id, sum(store.run_counts(campaign.campaign_id).values()))


def _owner(caller: Caller | None) -> str:
    return "" if caller is None else caller.identity_id
