"""What people ask of running campaigns: to pause, resume, cancel or retry all runs, a workload's, or one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from assay_core.records.campaign import CampaignStatus
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
class RunsRequest:
    """A request about the runs of ``workload``, about the run ``run_id``, or about the whole campaign if both
    are "". ``at_once``: a pause also hands back what is running."""

    campaign_id: str
    workload: str = ""
    run_id: str = ""
    at_once: bool = False

    def to_proto(self) -> campaign_pb2.RunsRequest:
        return campaign_pb2.RunsRequest(
            campaign_id=self.campaign_id, workload=self.workload, run_id=self.run_id, at_once=self.at_once
        )

    @classmethod
    def from_proto(cls, message: campaign_pb2.RunsRequest) -> RunsRequest:
        return cls(message.campaign_id, message.workload, message.run_id, message.at_once)


@dataclass(frozen=True)
class RunsAnswer:
    """The campaign after a request, without its runs.

    ``runs_changed``: runs that it changed; ``attempts_ended``: attempts that were running and were cancelled
    or handed back; ``attempts_running``: attempts of the requested runs that go on.
    """

    campaign: CampaignStatus
    runs_changed: int
    attempts_ended: int
    attempts_running: int

    def to_proto(self) -> campaign_pb2.RunsAnswer:
        return campaign_pb2.RunsAnswer(
            campaign=self.campaign.to_proto(),
            runs_changed=self.runs_changed,
            attempts_ended=self.attempts_ended,
            attempts_running=self.attempts_running,
        )

    @classmethod
    def from_proto(cls, message: campaign_pb2.RunsAnswer) -> RunsAnswer:
        return cls(
            CampaignStatus.from_proto(message.campaign),
            message.runs_changed,
            message.attempts_ended,
            message.attempts_running,
        )
