"""Which campaigns a caller may know of, and which project and priority their campaigns may have.

Viewers and submitters know of their own campaigns and of those of their project; operators, admins, the owner
of the socket and whoever has the project ``*`` know of all. Sources: docs/security.md, "Projects";
docs/scheduling.md, "Who may go first".
"""

from __future__ import annotations

from assay_core.identity.roles import Role
from assay_sampling.errors import NotPermittedError
from assay_server.access.caller import Caller
from assay_server.store.model import EVERYTHING, Sight

EVERY_PROJECT = "*"
SUBMITTERS_HIGHEST_PRIORITY = 0
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


def require_priority(caller: Caller | None, priority: int) -> None:
    """Raise NotPermittedError if a caller asks to go before others and may not; None: the server's own work.

    The owner of the socket may: on a box of one's own nobody else waits.
    """
    if priority <= SUBMITTERS_HIGHEST_PRIORITY or caller is None or caller.is_owner:
        return
    if caller.role not in _WHOLE_LAB:
        raise NotPermittedError(
            f"priority {priority}",
            f"only operators and admins put a campaign before those of others, and {caller.name} is a "
            f"{caller.role}",
            f"leave 'priority' out of the campaign file or give at most {SUBMITTERS_HIGHEST_PRIORITY}, or "
            "have an operator submit the campaign",
        )
