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
            found = person_called(store, change.identity)
            if change.role.kind is not IdentityKind.PERSON:
                raise _not_a_person(change.identity)
            project = found.project if change.project is None else change.project
            if len(project) > _LONGEST_PROJECT or not (project.isprintable()):
                raise ParameterError(
                    "project", f"{project[:50]!r} is not at most {_LONGEST_PROJECT} printable characters"
                )
            now = replace(found, role=change.role, project=project)
            store.put_identity(now)
            what = f"{found.role} to {now.role}"
            if project != found.project:
                what += f", project {found.project!r} to {project!r}"
            note_subject(f"person {now.name} ({now.identity_id})", what)
        self._directory.refresh()
        return RoleSet(now.identity_id, now.name, now.role, now.project)

    def read_audit(self, asked: AuditAsked) -> AuditPage:
        """A page of the audit log, newest first."""
        most = max(1, min(asked.most or _PAGE_ENTRIES, _PAGE_ENTRIES))
        with self._metadata.snapshot() as store:
            found = store.audit_entries(
                before=max(0, asked.before), most=most + 1, identity=asked.identity, since_ms=asked.since_ms
            )
        told = found[:most]
        return AuditPage(tuple(told), told[-1].entry_id if len(found) > most else 0)


def person_called(store: SqlTransaction, name: str) -> Identity:
    """The person with an id, or the only one with a name. Raises ParameterError."""
    subject = f"identity {name[:100]!r}"
    known = [each for each in store.identities() if not each.revoked_at_ms]
    found = [each for each in known if each.identity_id == name]
    found = found or [each for each in known if each.name == name]
    if len(found) != 1:
        cause = "the server knows no such identity" if not found else "several identities have that name"
        raise ParameterError(subject, cause, "give the id of one: assay admin identities lists them")
    [identity] = found
    if identity.kind is not IdentityKind.PERSON:
        raise _not_a_person(name)
    return identity


def _not_a_person(name: str) -> ParameterError:
    return ParameterError(
        f"identity {name[:100]!r}",
        "an agent stays an agent, and a person a person",
        "make a join token for another identity",
    )
