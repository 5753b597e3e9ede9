"""Budgets of GPU hours per person: who may use how much in 30 days, and has used how much. May block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from assay_core.identity.roles import IdentityKind
from assay_core.records.lab import BudgetChange, Budgets, BudgetsAsked, PersonBudget
from assay_server.access.audit import note_subject
from assay_server.access.caller import current_caller
from assay_server.access.people import person_called
from assay_server.access.rights import sight_of
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.queue import PERSON_DAYS
from assay_server.store.people import Identity
from assay_server.store.sql import SqlTransaction


class BudgetHandler:
    """Shows and changes people's budgets."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    def budgets(self, query: BudgetsAsked) -> Budgets:
        """Everybody, or one person; callers who may not see all campaigns see themselves alone.

        Raises ParameterError for a person whom the server does not know.
        """
        sight = sight_of(current_caller())
        with self._coordinator.schedule() as schedule:
            store = schedule.store
            people: Iterable[Identity] = (
                [person_called(store, query.identity)] if query.identity else store.identities()
            )
            entries = [
                self._budget_of(store, each)
                for each in people
                if each.kind is IdentityKind.PERSON
                and not each.revoked_at_ms
                and (sight.everything or each.identity_id == sight.identity_id)
            ]
        return Budgets(tuple(sorted(entries, key=lambda each: (each.name, each.identity_id))), PERSON_DAYS)

    def set_budget(self, change: BudgetChange) -> PersonBudget:
        """Give a person a budget, or take it away; it holds for the next lease. Raises ParameterError."""
        with self._coordinator.schedule() as schedule:
            store = schedule.store
            person = person_called(store, change.identity)
            now = replace(person, budget_gpu_hours=change.gpu_hours)
            store.put_identity(now)
            before, after = (_hours(each.budget_gpu_hours) for each in (person, now))
            note_subject(f"person {now.name} ({now.identity_id})", f"GPU hours {before} to {after}")
            schedule.effects.doubt = True  # the next decision reads budgets again
        with self._coordinator.schedule() as schedule:
            return self._budget_of(schedule.store, now)

    def _budget_of(self, store: SqlTransaction, person: Identity) -> PersonBudget:
        coordinator, own = self._coordinator, person.budget_gpu_hours
        return PersonBudget(
            person.identity_id,
            person.name,
            person.role,
            person.project,
            own,
            (coordinator.policy.person_gpu_hours or None) if own is None else own,
            coordinator.queue.person_hours(store, person.identity_id, coordinator.clock.now_ms()),
        )


def _hours(hours: float | None) -> str:
    return "none" if hours is None else f"{hours:g}"
