"""Submitting a campaign: read, planned and stored as one, or refused.

Large campaigns come in piece by piece, so that leases and heartbeats have their turn in between. Nobody sees
a campaign before its last piece is there. One comes at a time, so whatever else has begun was left by a
crash, and goes.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from assay_core.records.campaign import BundleFolder, CampaignState, Submission, Submitted
from assay_core.records.upload import Bundle
from assay_sampling.errors import CampaignError, ParameterError, StorageError
from assay_server.access.audit import note_kept_back, note_nothing_new, note_subject
from assay_server.access.caller import Caller, current_caller, project_for, require_priority
from assay_server.campaign_file.compiled import CompiledCampaign
from assay_server.campaign_file.reading import CampaignFile, compile_campaign, read_campaign_file
from assay_server.campaign_file.spec import Campaign as CampaignSpec
from assay_server.campaigns.bundles import BundleStore, holder
from assay_server.campaigns.planning.plan import Plan, next_number, plan_campaign
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.slicing.published import RECENT_SLICES, SliceCosts
from assay_server.store.model import Campaign, Run, Slice
from assay_server.store.sql import SqlTransaction
from assay_server.store.transactions import repeated

_LONGEST_KEY = 100
# Each run keeps the folder; messages repeat the name of the file.
_LONGEST_PATH = 1024
# Runs and slices of a piece: its transaction takes some 25 ms.
PIECE_ROWS = 1_000
# A run that goes takes all its slices with it.
_RUNS_GIVEN_UP = 500
# The rest after a piece, as a multiple of its time: others get the writer's lock between two pieces.
_REST = 0.5
_LEAST_REST_SECONDS = 0.002


@dataclass(frozen=True)
class Pace:
    """How large the pieces are, and how to rest between two of them."""

    piece_rows: int = PIECE_ROWS
    rest: Callable[[float], None] = time.sleep

    def is_large(self, plan: Plan) -> bool:
        """Whether a campaign comes in several pieces."""
        return len(plan.runs) + len(plan.slices) > self.piece_rows


ORDINARY = Pace()


@repeated
def submit(coordinator: Coordinator, submission: Submission, pace: Pace = ORDINARY) -> Submitted:
    """Plan and store a campaign of the caller's, or tell which folders' files must be sent first.

    A submission that its caller sent before, with the same key, is answered with the campaign that it
    became. A large campaign is stored piece by piece. Raises
    CampaignError naming line and field of each fault of the file, NotPermittedError if it names a
    project of others or a priority that the caller may not give, ParameterError for a key or path that is
    too long, and StorageError if there is no room for new work.
    """
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
    compiled = compile_campaign(spec, sent.values())
    return _Submitting(coordinator, pace, submission, spec, sent, compiled, caller, project).stored()


@dataclass(frozen=True)
class _Submitting:
    """A submission that was read and is allowed; ``bundles``: by folder."""

    coordinator: Coordinator
    pace: Pace
    submission: Submission
    spec: CampaignSpec
    bundles: dict[str, Bundle]
    compiled: CompiledCampaign
    caller: Caller | None
    project: str

    def stored(self) -> Submitted:
        """The campaign, stored; planned again each time another one of its name or its key comes first."""
        while True:
            with self.coordinator.snapshot() as store:  # others do not wait for this
                campaign, plan = self._planned(store)
            note_subject(f"campaign {campaign.campaign_id}", f"{len(plan.runs)} runs")
            with contextlib.suppress(_OvertakenError):
                before = (
                    self._bring_in(campaign, plan)
                    if self.pace.is_large(plan)
                    else self._begin(campaign, plan.runs, plan.slices)
                )
                return before or Submitted(campaign.campaign_id, len(plan.runs))

    def _planned(self, store: SqlTransaction) -> tuple[Campaign, Plan]:
        """Its campaign, under the number that it gets if no other one of its name comes first, and plan."""
        spec, sent = self.spec, self.submission
        number = next_number(store.campaign_numbers(spec.campaign))
        campaign = Campaign(
            campaign_id=f"{spec.campaign}-{number}",
            name=spec.campaign,
            number=number,
            synthetic=spec.synthetic,
            state=CampaignState.RUNNING,
            text=sent.text,
            file_name=sent.file_name,
            base_directory=sent.base_directory,
            compiled=self.compiled,
            created_at_ms=self.coordinator.clock.now_ms(),
            owner=_owner(self.caller),
            owner_name="" if self.caller is None else self.caller.name,
            project=self.project,
            submission=sent.key,
        )
        costs = SliceCosts(store.slice_times(RECENT_SLICES) if spec.live_workloads else ())
        return campaign, plan_campaign(
            spec, campaign.campaign_id, sent.base_directory, sent.file_name, costs, bundles=self.bundles
        )

    def _begin(
        self, campaign: Campaign, runs: Sequence[Run] = (), slices: Sequence[Slice] = (), mark: str = ""
    ) -> Submitted | None:
        """Store a campaign, which nobody sees while it arrives under a mark; returns what was sent before.

        Raises _OvertakenError if another one of its name came first.
        """
        with self.coordinator.schedule() as schedule:
            if before := _sent_before(schedule.store, self.submission, self.caller):
                return before
            if campaign.number != next_number(schedule.store.campaign_numbers(campaign.name)):
                raise _OvertakenError
            if mark:
                schedule.store.add_campaign(campaign, runs, slices, mark)
            else:
                schedule.add_campaign(campaign, runs, slices)
        return None

    def _bring_in(self, campaign: Campaign, plan: Plan) -> Submitted | None:
        """Store a campaign piece by piece, unless it was sent before; no other large one comes in meanwhile.

        Raises StorageError if the disk refuses a piece, or if this server lost its turn and another one gave
        the campaign up, and _OvertakenError if another one was quicker; then nothing of it counts.
        """
        with self.coordinator.arriving:
            _clear(self.coordinator, self.pace)
            mark = secrets.token_hex(8)
            with note_kept_back():
                if before := repeated(self._begin)(campaign, mark=mark):
                    return before
                for piece in _pieces(plan, self.pace.piece_rows):
                    began = time.monotonic()
                    self._add(campaign.campaign_id, mark, piece)
                    self.pace.rest(max(_LEAST_REST_SECONDS, _REST * (time.monotonic() - began)))
            try:
                self._end(campaign, mark)
            except _OvertakenError:
                _clear(self.coordinator, self.pace)
                raise
        return None

    @repeated
    def _add(self, campaign_id: str, mark: str, piece: Sequence[Run | Slice]) -> None:
        runs = [row for row in piece if isinstance(row, Run)]
        slices = [row for row in piece if isinstance(row, Slice)]
        run_ids = {run.run_id for run in runs}
        further = [row for row in slices if row.run_id not in run_ids]  # of the last run before
        with self.coordinator.schedule() as schedule:
            _require_arriving(schedule.store, campaign_id, mark)
            if further:
                schedule.store.replace_slices(further[0].run_id, further[0].index, further)
            if runs:
                schedule.store.add_runs(runs, slices[len(further) :])

    @repeated
    def _end(self, campaign: Campaign, mark: str) -> None:
        """Show a campaign that is there whole; raises _OvertakenError if another has its key meanwhile.

        A repeat may be small enough to be stored at once: plans change with the times that slices took.
        """
        with self.coordinator.schedule() as schedule:
            _require_arriving(schedule.store, campaign.campaign_id, mark)
            if campaign.submission and schedule.store.submitted_as(campaign.owner, campaign.submission):
                raise _OvertakenError  # in the block, so that the audit log gets no entry either
            schedule.end_arrival(campaign.campaign_id)


class _OvertakenError(Exception):
    """Another campaign came first: one of that name, or, in another way, one under its owner's key."""


def _require_arriving(store: SqlTransaction, campaign_id: str, mark: str) -> None:
    if not store.is_arriving(campaign_id, mark):
        cause = "this server lost the database for a while, and another one gave up what was there of it"
        raise StorageError(f"campaign {campaign_id}", cause, "submit it again; nothing of it was kept")


def clear_arrivals(coordinator: Coordinator) -> None:
    """Remove what a crash or a full disk left of campaigns; returns at once while one comes in."""
    if not coordinator.arriving.acquire(blocking=False):
        return
    try:
        _clear(coordinator, ORDINARY)
    finally:
        coordinator.arriving.release()


def _clear(coordinator: Coordinator, pace: Pace) -> None:
    with coordinator.snapshot() as store:
        left = store.arrivals()
    with note_kept_back():
        for campaign_id in left:
            while not _give_up(coordinator, campaign_id):
                pace.rest(_LEAST_REST_SECONDS)


@repeated
def _give_up(coordinator: Coordinator, campaign_id: str) -> bool:
    with coordinator.schedule() as schedule:
        return schedule.store.give_up_arrival(campaign_id, _RUNS_GIVEN_UP)


def _pieces(plan: Plan, most_rows: int) -> Iterator[Sequence[Run | Slice]]:
    """The runs of a plan in order, each followed by its slices, in pieces of at most so many rows.

    The first slices of a piece may be those of the last run of the piece before.
    """
    of_run: defaultdict[str, list[Slice]] = defaultdict(list)
    for piece in plan.slices:
        of_run[piece.run_id].append(piece)
    rows: list[Run | Slice] = []
    for run in plan.runs:
        rows.append(run)
        rows.extend(of_run[run.run_id])
    for first in range(0, len(rows), most_rows):
        yield rows[first : first + most_rows]


def folders_named(file: CampaignFile, store: BundleStore) -> tuple[BundleFolder, ...]:
    """The folders of bundles that a campaign file names, each once; raises CampaignError for too many."""
    folders: dict[str, BundleFolder] = {}
    for position, workload in enumerate(file.campaign.workloads):
        if workload.bundle is not None:
            line = file.line(("workloads", position, "bundle"))
            folders.setdefault(workload.bundle, BundleFolder(workload.bundle, workload.name, line))
    if len(folders) > store.limits.campaign_bundles:
        raise CampaignError(
            file.name,
            f"it names {len(folders):,} bundles; at most {store.limits.campaign_bundles:,} are taken",
            "make several campaigns",
        )
    return tuple(folders.values())


def sent_bundles(
    folders: Iterable[BundleFolder], sent: Mapping[str, Bundle], store: BundleStore, file_name: str
) -> dict[str, Bundle]:
    """The bundle of each folder that a campaign names. Raises CampaignError, or InputError, for others."""
    bundles: dict[str, Bundle] = {}
    for each in folders:
        if each.folder not in sent:
            raise CampaignError(
                f"{file_name or 'campaign file'}:{each.line}",
                f"the files of the bundle {each.folder!r} were not sent",
                "submit it with 'assay lab submit' of the server's release",
            )
        bundles[each.folder] = sent[each.folder]
    store.require(holder(), bundles.values())
    return bundles


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
