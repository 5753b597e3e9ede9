"""The table of failure classes is complete and each entry tells a person something."""

from __future__ import annotations

import pytest

from assay_core.records.failure import failure, failure_of
from assay_sampling.errors import StorageError
from assay_sampling.running.failures import FailureClass, Fault, failure_class_named

RETRYABLE = {
    "counter_busy", "lock_file", "hang", "report_short", "importer_failed", "dropped_events",
    "gpu_unhealthy", "throttled", "disk_full", "agent_restarted", "lease_expired", "gpu_lost", "window_short",
    "spool_damaged", "box_memory", "driver_unusable", "records_changed", "analysis_workers",
    "server_restored", "staging_damaged", "leftovers", "slot_broken", "gpu_busy",
}  # fmt: skip
FINAL = {
    "permission", "metric_unknown", "application_failed", "nothing_profiled", "mps_not_in_force",
    "input_unreadable", "memory_limit", "disk_limit", "server_refused", "refused_by_policy", "cancelled",
    "internal", "tool_unusable", "gpu_memory",
}  # fmt: skip


def test_every_class_of_the_contract_exists_with_its_retry_decision() -> None:
    assert {str(c) for c in FailureClass} == RETRYABLE | FINAL
    assert {str(c) for c in FailureClass if c.retryable} == RETRYABLE


def test_what_is_the_fault_of_the_box_or_of_nobody_never_counts_against_the_run() -> None:
    assert {str(c) for c in FailureClass if c.fault is Fault.BOX} == {
        "permission", "counter_busy", "lock_file", "gpu_lost", "disk_full", "box_memory", "tool_unusable",
        "driver_unusable", "spool_damaged", "leftovers", "slot_broken", "gpu_busy",
    }  # fmt: skip
    assert {str(c) for c in FailureClass if c.fault is Fault.NOBODY} == {
        "agent_restarted", "lease_expired", "cancelled", "server_restored", "staging_damaged",
        "records_changed", "refused_by_policy",
    }  # fmt: skip


@pytest.mark.parametrize("failure_class", list(FailureClass))
def test_every_class_says_what_happened_and_what_to_do(failure_class: FailureClass) -> None:
    for text in (failure_class.meaning, failure_class.remedy):
        assert len(text.split()) >= 4
        assert not text.endswith(".")


def test_a_failure_takes_from_the_table_what_is_left_out() -> None:
    found = failure(FailureClass.THROTTLED, "GPU-1")
    assert (found.cause, found.remedy) == (FailureClass.THROTTLED.meaning, FailureClass.THROTTLED.remedy)
    assert found.retryable
    assert str(found) == f"GPU-1: {found.cause} [throttled]; {found.remedy}"
    assert not failure(FailureClass.THROTTLED, "GPU-1", retryable=False).retryable


def test_the_failure_of_an_error_keeps_its_words() -> None:
    found = failure_of(StorageError("spool /x", "no space left", "free some"), FailureClass.DISK_FULL)
    assert (found.subject, found.cause, found.remedy) == ("spool /x", "no space left", "free some")
    assert failure_of(StorageError("spool /x", "gone"), FailureClass.DISK_FULL).remedy == (
        FailureClass.DISK_FULL.remedy
    )


def test_an_unknown_class_is_internal() -> None:
    assert failure_class_named("of a newer release") is FailureClass.INTERNAL
    assert failure_class_named("hang") is FailureClass.HANG
