"""``assay run`` ends for reasons that say that this machine can never measure, and waits for all others."""

from __future__ import annotations

from typing import Any

import pytest

from assay_client.hopeless import never_begin, never_go_on
from assay_core.records.campaign import QueueKind

NEVER = {QueueKind.NO_AGENT, QueueKind.NOT_OFFERED, QueueKind.AGENT_AWAY, QueueKind.OUT_OF_SERVICE}
# No run ends for these while the campaign begins; once all that is left waits for them, nothing goes on.
SPENT = {QueueKind.RESTING, QueueKind.BUDGET}


def status(*waiting: tuple[QueueKind | None, int], **more: Any) -> dict[str, Any]:
    rows = [{"kind": kind, "reason": f"for {kind}", "runs": runs} for kind, runs in waiting]
    counts = {"runs_total": 6, "runs_done": 0, "runs_failed": 0, "runs_cancelled": 0, "runs_running": 0}
    return {**counts, "resting": [], "waiting": rows, **more}


@pytest.mark.parametrize("kind", QueueKind)
def test_each_reason_ends_a_run_or_is_waited_for(kind: QueueKind) -> None:
    told = status((kind, 6))
    assert never_begin(told) == ((6, f"for {kind}") if kind in NEVER else (0, ""))
    assert never_go_on(told) == ((6, f"for {kind}") if kind in NEVER | SPENT else (0, ""))


def test_a_reason_without_a_kind_ends_nothing() -> None:
    assert never_begin(status((None, 6))) == never_go_on(status((None, 6))) == (0, "")


def test_only_the_runs_that_lack_something_are_counted() -> None:
    told = status((QueueKind.LIGHT_RUN, 4), (QueueKind.NOT_OFFERED, 2))
    assert never_begin(told) == (2, "for not_offered")


@pytest.mark.parametrize("kind", QueueKind)
def test_runs_that_follow_others_end_with_them(kind: QueueKind) -> None:
    """A lost GPU also ends the runs whose light run it had; a paused run can still be resumed."""
    told = status((kind, 4), (QueueKind.OUT_OF_SERVICE, 2))
    ends = kind in NEVER | SPENT | {QueueKind.LIGHT_RUN, QueueKind.AFTER}
    assert never_go_on(told)[0] == (6 if ends else 0)


def test_nothing_ends_while_a_run_that_does_not_wait_is_left() -> None:
    assert never_go_on(status((QueueKind.OUT_OF_SERVICE, 5))) == (0, "")
    for state in ("done", "failed", "cancelled"):
        told = status((QueueKind.OUT_OF_SERVICE, 5), **{f"runs_{state}": 1})
        assert never_go_on(told) == (5, "for out_of_service")
    assert never_go_on(status(runs_done=6)) == (0, "")


@pytest.mark.parametrize(("failures", "left"), [(2, 0), (3, 6)])
def test_a_slot_that_rests_is_waited_for_twice(failures: int, left: int) -> None:
    told = status((QueueKind.RESTING, 6), resting=[{"failures": failures}])
    assert never_go_on(told)[0] == left


def test_a_run_that_has_begun_is_given_up_once_the_budget_keeps_its_next_slice_from_beginning() -> None:
    assert never_go_on(status((QueueKind.BUDGET, 6), runs_running=1)) == (6, "for budget")
    assert never_go_on(status((QueueKind.BUDGET, 5), runs_running=1)) == (0, ""), "one is still measured"
