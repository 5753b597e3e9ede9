"""Why runs wait, as the server tells it."""

from __future__ import annotations

from enum import StrEnum

from assay_core.records.wire import ClosedSet
from assay_protos import lab_pb2


class QueueKind(StrEnum):
    """Why runs wait: the reasons of :mod:`assay_server.campaigns.scheduling.waiting`, and two more.

    CAMPAIGN_PAUSED: all of the campaign is; LIGHT_RUN: a light run comes first, which decides their slices.
    """

    CAMPAIGN_PAUSED = "campaign_paused"
    PAUSED = "paused"
    LIGHT_RUN = "light_run"
    AFTER = "after"
    NO_AGENT = "no_agent"
    NOT_OFFERED = "not_offered"
    AGENT_AWAY = "agent_away"
    OUT_OF_SERVICE = "out_of_service"
    MAINTENANCE = "maintenance"
    RESTING = "resting"
    BUDGET = "budget"
    EXCLUSIVE = "exclusive"
    QUEUED = "queued"


QUEUE_KINDS = ClosedSet(lab_pb2.WaitKind, QueueKind)
