"""What admins do with people's roles, and the audit log that they read. Plain functions; may block."""

from __future__ import annotations

from dataclasses import replace

from assay_core.identity.roles import IdentityKind
from assay_core.records.lab import AuditAsked, AuditPage, RoleChange, RoleSet
from assay_sampling.errors import ParameterError
from assay_server.access.audit import note_subject
from assay_server.access.directory import IdentityDirectory
from assay_server.store.people import Identity
from assay_server.store.sql import MetadataStore, SqlTransaction

_PAGE_ENTRIES = 500
_LONGEST_PROJECT = 100


class PeopleHandler:
    """Roles and the audit log."""

    def __init__(self, metadata: MetadataStore, directory: IdentityDirectory) -> None:
        self._metadata = metadata
        self._directory = directory

    def set_role(self, change: RoleChange) -> RoleSet:
        """Give a person another role; it holds at once. Raises ParameterError."""
        with self._metadata.transaction() as store:
            person = person_called(store, change.identity)
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
        self._directory.refresh()
        return RoleSet(now.identity_id, now.name, now.role, now.project)

    def read_audit(self, query: AuditAsked) -> AuditPage:
        """A page of the audit log, newest first."""
        most = max(1, min(query.most or _PAGE_ENTRIES, _PAGE_ENTRIES))
        with self._metadata.snapshot() as store:
            entries = store.audit_entries(
                before=max(0, query.before), most=most + 1, identity=query.identity, since_ms=query.since_ms
            )
        shown = entries[:most]
        return AuditPage(tuple(shown), shown[-1].entry_id if len(entries) > most else 0)


def person_called(store: SqlTransaction, name: str) -> Identity:
    """The person with an id, or the only one with a name. Raises ParameterError."""
    subject = f"identity {name[:100]!r}"
    known = [each for each in store.identities() if not each.revoked_at_ms]
    matches = [each for each in known if each.identity_id == name]
    matches = matches or [each for each in known if each.name == name]
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
