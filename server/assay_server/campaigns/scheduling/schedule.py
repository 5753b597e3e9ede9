"""The scheduler: who runs which slice, until when, and with what result. All in one metadata transaction.

The rules: a slot has at most one leased attempt; a slice has at most one attempt that is leased or being
published, and at most one that is published, ever. Each lease gets a fencing token larger than all earlier
ones; an agent with another token than that of the slice's newest attempt must drop its attempt. Each lease
also has a secret: only the process that got it, or a later one of the same agent that registers the secret,
may write to the attempt. An attempt whose lease expired may come back until its slice is leased again: a
network that was down for a minute must not cost days of profiling.
"""

from __future__ import annotations

from assay_server.campaigns.scheduling.attempt_results import AttemptResults
from assay_server.campaigns.scheduling.campaign_course import CampaignCourse
from assay_server.campaigns.scheduling.leases import Leases
from assay_server.campaigns.scheduling.runs_requests import RunsRequests


class Schedule(Leases, AttemptResults, CampaignCourse, RunsRequests):
    """The scheduler's operations in one transaction at one moment; apply ``effects`` after the commit."""
