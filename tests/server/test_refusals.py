"""What one agent's policy refuses goes to the other agents that match, and ends when all have refused."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from assay_core.records.campaign import RunState
from assay_core.records.failure import failure
from assay_sampling.running.failures import FailureClass
from assay_server.campaigns.scheduling.fitting_slots import AWAY_AFTER_MS
from assay_server.store.model import Run
from tests.support.server.queue_lab import HANG, QueueLab, agent_of, live_campaign

REFUSED = failure(FailureClass.REFUSED_BY_POLICY, "the command", "no line of /p.toml allows it")


def lab_of(*names: str, slots: int = 1) -> QueueLab:
    return QueueLab(*(agent_of("v100", slots, name) for name in names))


def run_of(lab: QueueLab, run_id: str = "c-1.0000") -> Run:
    with lab.store.snapshot() as read:
        found = read.run(run_id)
    assert found is not None
    return found


def test_another_agent_gets_what_one_refuses() -> None:
    lab = lab_of("a", "b")
    lab.submit(*live_campaign(1, ["v100"] * 2))
    assert lab.got("a-0") == "c-1.0000"
    lab.fail("a-0", REFUSED)
    assert run_of(lab).state is RunState.WAITING
    assert lab.got("a-0") == "c-1.0001", "the policy may allow the next one"
    lab.fail("a-0", REFUSED)
    assert lab.got("a-0") == "", "it is not asked for the same again"
    assert lab.got("b-0") == "c-1.0000"
    lab.finish("b-0")
    assert run_of(lab).state is RunState.DONE


def test_a_run_ends_when_every_agent_has_refused_it_with_all_reasons() -> None:
    lab = lab_of("a", "b", "c", slots=2)
    lab.submit(*live_campaign(1, ["v100"] * 2))
    for name in ("a", "b", "c"):
        assert lab.got(f"{name}-1") == "c-1.0000", name
        lab.fail(f"{name}-1", replace(REFUSED, cause=f"reason {name}"))
    run = run_of(lab)
    assert run.state is RunState.FAILED and run.failure is not None
    assert run.failure.cause == "; ".join(
        f"the policy of agent {name} refuses it: reason {name}" for name in ("a", "b", "c")
    )
    assert run.failure.failure_class == "refused_by_policy"
    assert run_of(lab, "c-1.0001").state is RunState.WAITING, "refusals set no workload aside"


def test_what_is_refused_hides_nothing_that_is_allowed() -> None:
    """However many runs wait for another agent, this one goes on with the rest, in all its slots."""
    lab = lab_of("a", "b", slots=2)
    lab.submit(*live_campaign(1, ["v100"] * 40))
    lab.submit(*live_campaign(2, ["v100"]))
    for number in range(40):
        assert lab.got("a-0") == f"c-1.{number:04}"
        lab.fail("a-0", REFUSED)
    assert lab.got("a-1") == "c-2.0000"
    assert lab.got("a-0") == ""


def test_refusals_cost_no_try_and_no_trust() -> None:
    lab = lab_of("a", "b", "c", "d")
    lab.submit(*live_campaign(1, ["v100"]))
    for name in ("a", "b", "c"):
        assert lab.got(f"{name}-0") == "c-1.0000"
        lab.fail(f"{name}-0", REFUSED)
    for _ in range(2):
        assert lab.got("d-0") == "c-1.0000"
        lab.fail("d-0", HANG)
        lab.clock.ms += 60_000
        for agent in lab.agents.values():
            lab.register(replace(agent, seen_at_ms=lab.clock.ms))
    assert lab.got("d-0") == "c-1.0000", "two of its three tries are spent"


def test_an_agent_that_went_away_is_not_waited_for() -> None:
    lab = lab_of("a", "b")
    lab.submit(*live_campaign(1, ["v100"]))
    assert lab.got("a-0") == "c-1.0000"
    lab.fail("a-0", REFUSED)
    lab.clock.ms += AWAY_AFTER_MS + 1
    lab.register(replace(lab.agents["a"], seen_at_ms=lab.clock.ms))
    assert lab.got("a-0") == "c-1.0000", "nobody else is there: it may have another policy by now"
    lab.fail("a-0", REFUSED)
    assert run_of(lab).state is RunState.FAILED


@settings(deadline=None, max_examples=30)
@given(st.lists(st.booleans(), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_every_agent_is_asked_at_most_once_and_one_that_allows_is_enough(
    allows: list[bool], random: object
) -> None:
    names = [f"box{number}" for number in range(len(allows))]
    lab = lab_of(*names)
    lab.submit(*live_campaign(1, ["v100"]))
    asked = []
    while run_of(lab).state in (RunState.WAITING, RunState.RUNNING):
        random.shuffle(names)  # type: ignore[attr-defined]
        name = next(name for name in names if lab.got(f"{name}-0"))
        asked.append(name)
        if allows[int(name.removeprefix("box"))]:
            lab.finish(f"{name}-0")
        else:
            lab.fail(f"{name}-0", REFUSED)
    assert len(asked) == len(set(asked))
    assert (run_of(lab).state is RunState.DONE) == any(allows)
