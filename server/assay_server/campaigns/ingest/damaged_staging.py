"""Staged segments that the server's disk changed or lost: kept for a look, told, and measured again."""

from __future__ import annotations

import logging

from assay_core.program_log import log_about
from assay_core.records.attempt import AttemptKey
from assay_core.records.failure import Failure, failure
from assay_sampling.errors import StorageError
from assay_sampling.running.failures import FailureClass
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.store.quarantine_files import warn_of
from assay_server.store.records import DamagedSegmentError

_log = logging.getLogger(__name__)


def staging_damaged(coordinator: Coordinator, key: AttemptKey, error: DamagedSegmentError) -> Failure:
    """The failure of the attempt; what is left of its segments is set aside, which the status tells."""
    records = coordinator.records
    try:
        moved = records.set_aside_staged(key)
        if moved is not None:
            warn_of(moved)
    except StorageError as refused:  # the disk is ill: the attempt must end nevertheless
        with log_about(**key.log_fields):
            _log.warning("the damaged segments cannot be set aside: %s", refused)
    return failure(FailureClass.STAGING_DAMAGED, error.subject, error.cause)
