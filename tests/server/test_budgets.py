"""Budgets of GPU hours per person: what they bound, who may change them, and who sees which."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from assay_client.cli.reporters.people import render_budgets
from assay_client.cli.verbs.admin.budget import app as budget_verb
from assay_client.remote.client import Client
from assay_core.identity.roles import IdentityKind, Role
from assay_core.records.lab import BudgetChange, BudgetsAsked
from assay_sampling.errors import ParameterError
from assay_server.access.audit import AuditedStore, begin_note
from assay_server.access.caller import OWNER_ID, Caller, called_by
from assay_server.app import Server
from assay_server.campaigns.scheduling.transitions import SchedulePolicy
from assay_server.rpc.handlers.lab import budgets, set_budget
from assay_server.store.people import Identity
from assay_server.store.sql import MetadataStore
from assay_server.store.sqlite import SqliteStore
from tests.support.server.queue_lab import QueueLab, agent_of, live_campaign

HOUR_MS = 3_600_000
ANN = Identity("aa" * 16, IdentityKind.PERSON, "ann", Role.SUBMITTER, "vision")
BOB = Identity("bb" * 16, IdentityKind.PERSON, "bob", Role.SUBMITTER)
GONE = Identity("dd" * 16, IdentityKind.PERSON, "gone", Role.ADMIN, revoked_at_ms=5)
BOX = Identity("cc" * 16, IdentityKind.AGENT, "box", Role.AGENT)


def made_lab(person_gpu_hours: float = 0.0, store: MetadataStore | None = None) -> QueueLab:
    policy = SchedulePolicy(10**12, person_gpu_hours=person_gpu_hours)
    lab = QueueLab(agent_of("v100", 1), policy=policy, store=store)
    with lab.store.transaction() as write:
        for each in (ANN, BOB, GONE, BOX):
            write.put_identity(each)
    return lab


def hours_taken(lab: QueueLab, most: int = 9) -> int:
    """How many runs of an hour begin, one after another."""
    for taken in range(most):
        if not lab.got("v100-0"):
            return taken
        lab.clock.ms += HOUR_MS
        lab.finish("v100-0")
    return most


@given(st.none() | st.integers(0, 5), st.integers(0, 5), st.booleans())
def test_a_person_begins_runs_until_their_own_budget_is_used_up_else_the_servers(
    own: int | None, servers: int, again: bool
) -> None:
    lab = made_lab(float(servers))
    lab.submit(*live_campaign(1, ["v100"] * 9, owner=ANN.identity_id))
    if own is not None:
        set_budget(lab.coordinator, BudgetChange("ann", float(own)))
    if again:
        lab.restart()  # budgets are stored, and so is what was used
    expected = own if own is not None else (servers or 9)
    assert hours_taken(lab) == expected
    [told] = budgets(lab.coordinator, BudgetsAsked("ann")).people
    assert told.used_gpu_hours == pytest.approx(expected)
    assert told.own_gpu_hours == own
    assert told.gpu_hours == (own if own is not None else servers or None)


def test_a_change_holds_for_the_next_lease_and_only_for_that_person() -> None:
    lab = made_lab(person_gpu_hours=2)
    lab.submit(*live_campaign(1, ["v100"] * 9, owner=ANN.identity_id))
    assert hours_taken(lab) == 2
    set_budget(lab.coordinator, BudgetChange("bob", 100.0))
    assert hours_taken(lab) == 0
    set_budget(lab.coordinator, BudgetChange(ANN.identity_id, 5.0))
    assert hours_taken(lab) == 3
    set_budget(lab.coordinator, BudgetChange("ann", None))
    assert hours_taken(lab) == 0, "the server's budget holds again"
    lab.clock.ms += 31 * 24 * HOUR_MS
    assert hours_taken(lab) == 2, "use of more than 30 days ago is forgotten"


def test_operators_see_everybody_and_others_themselves() -> None:
    lab = made_lab()

    def seen(caller: Caller, who: str = "") -> list[str]:
        with called_by(caller):
            return [each.name for each in budgets(lab.coordinator, BudgetsAsked(who)).people]

    assert seen(Caller("x", "x", Role.OPERATOR)) == ["ann", "bob"], "not boxes, not those who were revoked"
    assert seen(Caller(ANN.identity_id, "ann", Role.SUBMITTER, "vision")) == ["ann"]
    assert seen(Caller(ANN.identity_id, "ann", Role.VIEWER), "bob") == []


def test_the_owner_of_the_socket_has_no_budget() -> None:
    lab = made_lab(person_gpu_hours=2)
    lab.submit(*live_campaign(1, ["v100"] * 9, owner=OWNER_ID))
    assert hours_taken(lab) == 9


@pytest.mark.parametrize("who", ["nobody", "box", "gone"])
def test_only_people_whom_the_server_knows_have_budgets(who: str) -> None:
    lab = made_lab()
    with pytest.raises(ParameterError):
        set_budget(lab.coordinator, BudgetChange(who, 1.0))


@pytest.mark.parametrize("hours", [-1.0, math.nan, math.inf, 1e12])
def test_hours_that_cannot_be_are_refused(hours: float) -> None:
    with pytest.raises(ParameterError, match="is not a number from 0"):
        BudgetChange.from_proto(BudgetChange("ann", hours).to_proto())


def test_a_change_is_audited() -> None:
    lab = made_lab(store=AuditedStore(SqliteStore(None)))
    with called_by(Caller("x", "olga", Role.OPERATOR)):
        begin_note("SetBudget", "unix:")
        set_budget(lab.coordinator, BudgetChange("ann", 40.0))
    with lab.store.snapshot() as read:
        [entry] = read.audit_entries()
    assert (entry.call, entry.subject) == ("SetBudget", f"person ann ({ANN.identity_id})")
    assert entry.detail == "GPU hours none to 40"


def test_the_verb_shows_and_changes_budgets(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    store = SqliteStore(server.settings.state_dir / "metadata.sqlite")
    with store.transaction() as transaction:
        transaction.put_identity(ANN)
    store.close()
    address = server.addresses[0]
    assert CliRunner().invoke(budget_verb, ["ann", "--gpu-hours", "2.5", "--server", address]).exit_code == 0
    with Client(address) as client:
        found = client.budgets()
        assert found["days"] == 30
        [ann] = found["people"]
        assert (ann["own_gpu_hours"], ann["gpu_hours"], ann["left_gpu_hours"]) == (2.5, 2.5, 2.5)
        assert (ann["name"], ann["role"], ann["project"]) == ("ann", "submitter", "vision")
        none = client.set_budget("ann", None)
        assert none["gpu_hours"] is None and none["left_gpu_hours"] is None
    render_budgets(found, Console(width=120))
    assert "their own" in capsys.readouterr().out
    refused = CliRunner().invoke(budget_verb, ["--gpu-hours", "3", "--server", address])
    assert isinstance(refused.exception, ParameterError)
