"""Which priorities a caller may give to campaigns. Source: docs/scheduling.md, "Who may go first"."""

from __future__ import annotations

from assay_core.identity.roles import Role
from assay_sampling.errors import NotPermittedError
from assay_server.access.caller import Caller

SUBMITTERS_HIGHEST_PRIORITY = 0
_PUT_FIRST = frozenset({Role.OPERATOR, Role.ADMIN})


def require_priority(caller: Caller | None, priority: int) -> None:
    """Raise NotPermittedError if a caller asks to go before others and may not; None: the server's own work.

    The owner of the socket may: on a box of one's own nobody else waits.
    """
    if priority <= SUBMITTERS_HIGHEST_PRIORITY or caller is None or caller.is_owner:
        return
    if caller.role not in _PUT_FIRST:
        raise NotPermittedError(
            f"priority {priority}",
            f"only operators and admins put a campaign before those of others, and {caller.name} is a "
            f"{caller.role}",
            f"leave 'priority' out of the campaign file or give at most {SUBMITTERS_HIGHEST_PRIORITY}, or "
            "have an operator submit the campaign",
        )
