"""What people ask about campaigns and runs: lists, progress, costs, and how much the server has to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from assay_core.records.campaign import AttemptState, CampaignState, RunState
from assay_core.records.failure import Failure
from assay_core.records.validity_flag import ValidityFlag
from assay_server.store.model import Run


@dataclass(frozen=True)
class CampaignOverview:
    """A campaign in a list, without its file, which may be long; ``ordinal``: its place among all."""

    ordinal: int
    campaign_id: str
    name: str
    number: int
    synthetic: bool
    state: CampaignState
    failure: Failure | None
    owner: str = ""
    owner_name: str = ""
    project: str = ""
    paused: bool = False


@dataclass(frozen=True)
class StoreLoad:
    """How much a server has to do: campaigns by state, runs of running campaigns, and attempts under way.

    ``busy_slots``: those of leased attempts, all of a gang counted.
    """

    campaigns: Mapping[CampaignState, int] = field(default_factory=dict)
    runs: Mapping[RunState, int] = field(default_factory=dict)
    attempts: Mapping[AttemptState, int] = field(default_factory=dict)
    busy_slots: int = 0


@dataclass(frozen=True)
class CampaignProgress:
    """How far a campaign is. ``needs``: for each distinct need of open runs, one such run and how many
    have that need. ``retries``: attempts beyond the first of each slice. ``awaiting_light``: those of the
    ``needs`` whose runs get their slices when their light run has ended."""

    slices: int
    slices_done: int
    retries: int
    needs: tuple[tuple[Run, int], ...]
    awaiting_light: frozenset[str] = frozenset()


@dataclass(frozen=True)
class WorkloadCost:
    """What a workload has cost at one level on one kind of GPU, and how much of it is left.

    ``open_slices`` wait or run, of ``launches`` on average (0: to the end of the program); ``published``
    slices took ``published_seconds``; ``gpu_seconds``: for how long attempts have had GPUs, with any outcome
    (0 for recordings). ``gpus``: how many each attempt has.
    """

    workload: str
    device_key: str
    level: str
    open_slices: int = 0
    published: int = 0
    published_seconds: float = 0.0
    gpu_seconds: float = 0.0
    gpus: int = 1
    launches: float = 0.0


@dataclass(frozen=True)
class RunsAlike:
    """How many runs of a workload on one kind of GPU are in one state."""

    workload: str
    device_kind: str
    state: RunState
    runs: int


@dataclass(frozen=True)
class NotedRuns:
    """Runs with the same failure (None: they have not failed) and the same validity flags."""

    failure: Failure | None
    flags: tuple[ValidityFlag, ...]
    run_ids: tuple[str, ...]


@dataclass(frozen=True)
class RunFilter:
    """Which runs of a campaign somebody wants to see; "" and None: any.

    ``search``: a part of the workload's or the run's name, in any case; ``flag``: the name of one.
    """

    search: str = ""
    device_kind: str = ""
    state: RunState | None = None
    flag: str = ""
    paused: bool = False


EVERY_RUN = RunFilter()


@dataclass(frozen=True)
class RunOverview:
    """A run with facts of its slices and attempts: their numbers, the newest's agent, launches so far.

    ``retries``: attempts beyond the first of each slice.
    """

    run: Run
    attempts: int
    agent: str
    launches: int
    slices: int = 0
    slices_done: int = 0
    retries: int = 0
