"""The two seams of the server's store. Everything behind them is replaceable; one contract suite for all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from assay_server.store.model import (
    Agent,
    Attempt,
    AttemptKey,
    AttemptState,
    Campaign,
    CampaignOverview,
    CampaignProgress,
    FailureRecord,
    Run,
    RunOverview,
    RunState,
    Segment,
    Slice,
    SliceState,
    SliceTime,
    Slot,
)
from assay_server.store.set_aside import SetAside


class MetadataReader(Protocol):
    """Reads of one consistent moment. What does not exist is None or an empty list, never an error."""

    def campaign(self, campaign_id: str) -> Campaign | None: ...

    def campaigns(self, *, first: int = 0, most: int | None = None) -> list[CampaignOverview]:
        """Campaigns from the place ``first`` on, oldest first; at most so many, or all."""

    def counts_of_runs(self, campaign_ids: Sequence[str]) -> dict[str, dict[RunState, int]]:
        """How many runs each of these campaigns has in each state."""

    def campaign_numbers(self, name: str) -> list[int]: ...

    def run(self, run_id: str) -> Run | None: ...

    def runs(self, campaign_id: str) -> list[Run]:
        """The runs of a campaign, in its order."""

    def run_counts(self, campaign_id: str) -> dict[RunState, int]:
        """How many runs of a campaign are in each state; states without runs are left out."""

    def open_runs(self, campaign_id: str) -> int:
        """How many runs of a campaign have not ended."""

    def run_overviews(
        self, campaign_id: str, run_id: str | None = None, *, first: int = 0, most: int | None = None
    ) -> list[RunOverview]:
        """The runs of a campaign (or the one given), in its order, with what their attempts tell.

        ``first``: the place in that order to begin at; ``most``: so many (None: all).
        """

    def progress(self, campaign_id: str) -> CampaignProgress:
        """How far a campaign is, and for what its open runs wait, counted by the database."""

    def slice(self, run_id: str, index: int) -> Slice | None: ...

    def slices(self, run_id: str) -> list[Slice]: ...

    def published_slices(self) -> list[Slice]:
        """Every slice of every campaign that has a published file."""

    def waiting_slice(
        self, slot: Slot, now_ms: int, passed: Sequence[tuple[str, int]] = (), untried_by: str = ""
    ) -> tuple[Run, Slice] | None:
        """The first slice that waits, is due, and that ``slot`` can make; oldest campaign first.

        ``passed``: runs and slices that are left out. ``untried_by``: identity of the slot's agent, where all
        that have failed in the slot are left out.

        A recorded run plays in every slot with its profiler; a live one needs also the GPU's key and the
        slot's synthetic mark, and one at a static partition of the SMs a slot that says it makes them.
        """

    def resting_slices(self, now_ms: int) -> list[Slice]:
        """Slices of any campaign that wait and are not due before a later time."""

    def slice_states(self, run_id: str) -> list[SliceState]:
        """The states that slices of a run are in, each once."""

    def slice_times(self, most: int) -> list[SliceTime]:
        """What the newest published slices of detailed live runs took, of any campaign, newest first."""

    def untried_from(self, run_id: str) -> int:
        """The index from which on no slice of a run was ever given to anybody."""

    def seconds_spent(self, run_id: str) -> float:
        """How long all ended attempts of a run ran, whatever became of them."""

    def workload_failures(self, campaign_id: str, workload: str) -> list[tuple[str, FailureRecord | None]]:
        """Slot and failure of all failed attempts of a workload, in the order of their tokens."""

    def published_facts(self, run_id: str) -> list[tuple[int, str]]:
        """When the published attempts of a run were leased (Unix time, ms), and their facts, by slice."""

    def attempt(self, run_id: str, slice_index: int, attempt: int) -> Attempt | None: ...

    def attempts(self, run_id: str, slice_index: int | None = None) -> list[Attempt]:
        """The attempts of a run or of one of its slices, in the order of slice and attempt."""

    def attempts_in(
        self,
        states: Sequence[AttemptState],
        *,
        agent_id: str | None = None,
        slot_id: str | None = None,
        deadline_before_ms: int | None = None,
    ) -> list[Attempt]:
        """Attempts in one of these states, in the order of their tokens."""

    def segment(self, key: AttemptKey, index: int) -> Segment | None: ...

    def segments(self, key: AttemptKey) -> list[Segment]: ...

    def agent(self, agent_id: str) -> Agent | None: ...

    def agents(self) -> list[Agent]:
        """All agents that ever registered, in the order of their identifiers."""


class MetadataTransaction(MetadataReader, Protocol):
    """Reads and writes that happen all or not at all, one transaction at a time.

    ``save_*`` replaces a record that exists. Whatever breaks a rule of the data (a second active attempt
    of a slot or slice, a second published attempt of a slice, a key that exists) raises StorageError.
    """

    def add_campaign(self, campaign: Campaign, runs: Sequence[Run], slices: Sequence[Slice]) -> None: ...

    def add_runs(self, runs: Sequence[Run], slices: Sequence[Slice]) -> None:
        """More runs of campaigns that are there."""
        ...

    def save_campaign(self, campaign: Campaign) -> None: ...

    def save_run(self, run: Run) -> None: ...

    def save_slice(self, piece: Slice) -> None: ...

    def replace_slices(self, run_id: str, index: int, slices: Sequence[Slice]) -> None:
        """Put these slices in place of those of a run from an index on, none of which was ever tried."""

    def next_token(self) -> int:
        """A fencing token larger than every one before, also over restarts."""

    def begin_epoch(self, now_ms: int) -> int:
        """Let all tokens from now on be of a later epoch; returns it. ``now_ms``: by the wall clock.

        Tokens of a state that was lost, because a backup took its place, never come again: the epoch is at
        least the millisecond of the start, and the first token in it is chosen at random.
        """
        ...

    def add_attempt(self, attempt: Attempt) -> None: ...

    def save_attempt(self, attempt: Attempt) -> None: ...

    def add_segment(self, segment: Segment) -> None: ...

    def put_agent(self, agent: Agent) -> None:
        """Add or replace an agent with its slots."""

    def forget_agents(self, most: int) -> None:
        """Keep only the ``most`` agents that were seen last, and those that hold a lease."""


class MetadataStore(Protocol):
    """Campaigns, runs, slices, attempts, segments and agents. Safe to use from several threads."""

    def snapshot(self) -> AbstractContextManager[MetadataReader]:
        """Read; raises StorageError where the disk or the data cannot be read."""

    def transaction(self) -> AbstractContextManager[MetadataTransaction]:
        """Write: durable when the block ends, undone when it raises. Raises StorageError."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class PublishedFile:
    """A published slice: path relative to the records, size, launches, and BLAKE2b-256 in hexadecimal."""

    file: str
    file_bytes: int
    launches: int
    content_hash: str


@dataclass(frozen=True)
class KnownFiles:
    """What the metadata know of the files of a record store.

    Args:
        live: attempts whose staged segments may still be asked for.
        publishing: those of them whose published file may be in its place before the metadata say so.
        published: files of published slices, relative to the records.
        campaigns: all campaigns: their reports.
        has_attempt: whether an attempt was ever made: run, slice and number.
    """

    live: Collection[AttemptKey]
    publishing: Collection[AttemptKey]
    published: Collection[str]
    campaigns: Collection[str]
    has_attempt: Callable[[str, int, int], bool]


class RecordStore(Protocol):
    """Launch records: staged segments on their way, published files, and reports.

    Every write is durable when the method returns. StorageError: the disk refused it, nothing before is
    lost. DamagedSegmentError: a staged segment is not what was staged.
    """

    def stage(self, segments: Sequence[tuple[Segment, bytes, bytes]]) -> None:
        """Make segments durable, each with its compressed names and launches, at their offsets."""

    def staged(self, segment: Segment) -> tuple[bytes, bytes]:
        """The compressed names and launches of a staged segment, checked against its hashes."""

    def publish(self, key: AttemptKey, segments: Sequence[Segment]) -> PublishedFile:
        """Write all segments of an attempt, in order, as the one file of its slice; atomic, repeatable."""

    def withdraw(self, run_id: str, slice_index: int) -> None:
        """Remove the file of a slice, where there is one."""

    def discard(self, key: AttemptKey) -> None:
        """Remove the staged segments of an attempt, where there are any."""

    def sweep(self, known: KnownFiles) -> SetAside | None:
        """Remove what our own crashes and ended attempts left; only while nothing else writes.

        Whatever else the metadata do not know is set aside, never removed; None where there is nothing.
        """

    def set_aside(self, run_id: str, slice_index: int) -> SetAside | None:
        """Set the file of a slice aside, because it is not what was published; None where it is gone."""

    def all_set_aside(self) -> list[SetAside]:
        """What was set aside and is still there, oldest first."""
        ...

    def path(self, file: str) -> Path:
        """Where a published file lies."""

    def write_report(self, campaign_id: str, form: str, data: bytes) -> None:
        """Keep a report; ``form`` is "json" or "html"."""

    def report_path(self, campaign_id: str, form: str) -> Path: ...


__all__ = [
    "KnownFiles",
    "MetadataReader",
    "MetadataStore",
    "MetadataTransaction",
    "PublishedFile",
    "RecordStore",
    "Slot",
]
