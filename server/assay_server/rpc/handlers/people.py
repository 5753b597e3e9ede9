"""What admins and operators do with people: roles, budgets of GPU hours, the audit log. May block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from assay_core.identity.roles import IdentityKind
from assay_core.records.lab import (
    AuditAsked,
    AuditPage,
    BudgetChange,
    Budgets,
    BudgetsAsked,
    PersonBudget,
    RoleChange,
    RoleSet,
)
from assay_sampling.errors import ParameterError
from assay_server.access.audit import note_subject
from assay_server.access.caller import IdentityDirectory, current_caller, sight_of
from assay_server.campaigns.scheduling.coordinator import Coordinator
from assay_server.campaigns.scheduling.fair_share import PERSON_DAYS
from assay_server.store.people import Identity
from assay_server.store.sql import MetadataStore, SqlTransaction

_PAGE_ENTRIES = 500
_LONGEST_PROJECT = 100


def set_role(metadata: MetadataStore, directory: IdentityDirectory, change: RoleChange) -> RoleSet:
    """Give a person another role; it holds at once. Raises ParameterError."""
    with metadata.transaction() as store:
        person = _person_called(store, change.identity)
        if change.role.kind is not IdentityKind.PERSON:
            raise _not_a_person(change.identity)
        project = person.project if change.project is None else change.project
        if len(project) > _LONGEST_PROJECT or not (project.isprintable()):
            raise ParameterError(
                "project", f"{project[:50]!r} is not at most {_LONGEST_PROJECT} printable characters"
            )
        now = replace(person, role=change.role, project=project)
        store.put_identity(now)
        what = f"{person.role} to {now.role}"
        if project != person.project:
            what += f", project {person.project!r} to {project!r}"
        note_subject(f"person {now.name} ({now.identity_id})", what)
    directory.refresh()
    return RoleSet(now.identity_id, now.name, now.role, now.project)


def read_audit(metadata: MetadataStore, query: AuditAsked) -> AuditPage:
    """A page of the audit log, newest first."""
    most = max(1, min(query.most or _PAGE_ENTRIES, _PAGE_ENTRIES))
    with metadata.snapshot() as store:
        entries = store.audit_entries(
            before=max(0, query.before), most=most + 1, identity=query.identity, since_ms=query.since_ms
        )
    page = entries[:most]
    return AuditPage(tuple(page), page[-1].entry_id if len(entries) > most else 0)


def budgets(coordinator: Coordinator, query: BudgetsAsked) -> Budgets:
    """Everybody, or one person; callers who may not see all campaigns see themselves alone.

    Raises ParameterError for a person whom the server does not know.
    """
    sight = sight_of(current_caller())
    with coordinator.schedule() as schedule:
        store = schedule.store
        people: Iterable[Identity] = (
            [_person_called(store, query.identity)] if query.identity else store.identities()
        )
        entries = [
            _budget_of(coordinator, store, each)
            for each in people
            if each.kind is IdentityKind.PERSON
            and not each.revoked_at_ms
            and (sight.everything or each.identity_id == sight.identity_id)
        ]
    return Budgets(tuple(sorted(entries, key=lambda each: (each.name, each.identity_id))), PERSON_DAYS)


def set_budget(coordinator: Coordinator, change: BudgetChange) -> PersonBudget:
    """Give a person a budget, or take it away; it holds for the next lease. Raises ParameterError."""
    with coordinator.schedule() as schedule:
        store = schedule.store
        person = _person_called(store, change.identity)
        now = replace(person, budget_gpu_hours=change.gpu_hours)
        store.put_identity(now)
        before, after = (_hours(each.budget_gpu_hours) for each in (person, now))
        note_subject(f"person {now.name} ({now.identity_id})", f"GPU hours {before} to {after}")
        schedule.effects.doubt = True  # the next decision reads budgets again
    with coordinator.schedule() as schedule:
        return _budget_of(coordinator, schedule.store, now)


def _budget_of(coordinator: Coordinator, store: SqlTransaction, person: Identity) -> PersonBudget:
    own = person.budget_gpu_hours
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


def _person_called(store: SqlTransaction, name: str) -> Identity:
    """The person with an id, or the only one with a name. Raises ParameterError."""
    subject = f"identity {name[:100]!r}"
    identities = [each for each in store.identities() if not each.revoked_at_ms]
    matches = [each for each in identities if each.identity_id == name]
    matches = matches or [each for each in identities if each.name == name]
    if len(matches) != 1:
        cause = "the server knows no such identity" if not matches else "several identities have that name"
        raise ParameterError(subject, cause, "give the id of one: assay admin identities lists them")
    [identity] = matches
    if identity.kind is not IdentityKind.PERSON:
        raise _not_a_person(name)
    return identity


def _not_a_person(name: str) -> ParameterError:
    return ParameterError(
        f"identity {name[:100]!r}",
        "an agent stays an agent, and a person a person",
        "make a join token for another identity",
    )
