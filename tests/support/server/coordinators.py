"""Coordinators with room for everything, to which nobody sends bundles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from assay_server.campaigns.bundles import BundleStore
from assay_server.campaigns.capacity import Capacity
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.clock import Clock
from assay_server.store.record_store import RecordStore
from assay_server.store.sql import MetadataStore

_STATE = Path("unused")


def coordinator_over(
    metadata: MetadataStore, records: RecordStore, policy: SchedulePolicy, clock: Clock, **listeners: Any
) -> Coordinator:
    """A coordinator of these stores."""
    return Coordinator(
        metadata,
        records,
        policy,
        clock,
        capacity=Capacity(_STATE),
        bundles=BundleStore(_STATE, metadata, records),
        **listeners,
    )
