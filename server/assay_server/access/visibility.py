"""Which campaigns a caller may know of, and which project their campaigns go to.

Viewers and submitters know of their own campaigns and of those of their project; operators, admins, the owner
of the socket and whoever has the project ``*`` know of all. Source: docs/security.md, "Projects".
"""

from __future__ import annotations

from assay_core.identity.roles import Role
from assay_sampling.errors import NotPermittedError
from assay_server.access.caller import Caller
from assay_server.store.model import EVERYTHING, Sight

EVERY_PROJECT = "*"
_WHOLE_LAB = frozenset({Role.OPERATOR, Role.ADMIN})


def sight_of(caller: Caller | None) -> Sight:
    """The campaigns that a caller may know of; None: the server's own work."""
    if caller is None or caller.is_owner or caller.role in _WHOLE_LAB:
        return EVERYTHING
    if caller.project == EVERY_PROJECT:
        return EVERYTHING
    return Sight(False, caller.identity_id, caller.project)


def project_for(caller: Caller | None, named: str | None) -> str:
    """The project of a campaign that the caller submits; ``named``: by its file.

    Raises NotPermittedError if a submitter names a project of others, whose share of the GPUs it would use.
    """
    own = "" if caller is None or caller.project == EVERY_PROJECT else caller.project
    if named is None or named == own:
        return own
    if caller is not None and not sight_of(caller).everything:
        raise NotPermittedError(
            f"project {named!r}",
            f"{caller.name or caller.identity_id} is of project {own!r}"
            if own
            else f"{caller.name or caller.identity_id} is of no project",
            "leave 'project' out of the campaign file, or ask an admin: assay admin role NAME submitter "
            f"--project {named}",
        )
    return named
