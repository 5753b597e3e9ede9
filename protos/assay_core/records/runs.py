"""What people ask about runs and of them, to pause, resume, cancel or retry them; and a run in detail."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from assay_core.records.attempt import AttemptKey, AttemptLog
from assay_core.records.campaign import AttemptState, CampaignStatus, RunStatus
from assay_core.records.failure import Failure
from assay_core.records.wire import Record, Within
from assay_protos import campaign_pb2


class RunsAction(StrEnum):
    """What is asked for.

    ``PAUSE`` holds waiting runs, ``RESUME`` lets them go on, ``CANCEL`` stops runs for good, and ``RETRY``
    lets failed and cancelled runs wait again.
    """

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RETRY = "retry"


@dataclass(frozen=True)
class RunsRequest(Record[campaign_pb2.RunsRequest]):
    """A request about the runs of ``workload``, about the run ``run_id``, or about the whole campaign if both
    are "". ``at_once``: a pause also hands back what is running."""

    campaign_id: str
    workload: str = ""
    run_id: str = ""
    at_once: bool = False


@dataclass(frozen=True)
class RunsAnswer(Record[campaign_pb2.RunsAnswer]):
    """The campaign after a request, without its runs.

    ``runs_changed``: runs that it changed; ``attempts_ended``: attempts that were running and were cancelled
    or handed back; ``attempts_running``: attempts of the requested runs that go on.
    """

    campaign: CampaignStatus
    runs_changed: int
    attempts_ended: int
    attempts_running: int


@dataclass(frozen=True)
class NamedRun(Record[campaign_pb2.GetRunRequest]):
    """A request about a run."""

    run_id: str


@dataclass(frozen=True, kw_only=True)
class AttemptDetail(Record[campaign_pb2.AttemptDetail], log=Within()):
    """An attempt, for people. ``ended_at_ms`` 0: it has not ended yet.

    ``gang``: the other slots of a run over several GPUs.
    """

    key: AttemptKey
    state: AttemptState
    agent: str
    slot: str
    leased_at_ms: int
    ended_at_ms: int
    launches: int
    failure: Failure | None
    log: AttemptLog = field(default_factory=AttemptLog)
    gang: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunDetail(Record[campaign_pb2.RunDetail]):
    """A run with all its attempts, and the files it published, relative to the server's state folder."""

    run: RunStatus
    attempts: tuple[AttemptDetail, ...]
    files: tuple[str, ...]
