"""Names and ids of agents, which are theirs alone: nobody gets those of another agent by asking.

People find boxes by name in ``assay lab agents``, statuses and reports, so names that look alike count as
one.
"""

from __future__ import annotations

import unicodedata

from assay_core.identity.roles import IdentityKind
from assay_sampling.errors import NotPermittedError
from assay_server.store.sql import SqlTransaction


def require_free_name(store: SqlTransaction, agent_id: str, name: str) -> None:
    """Raises NotPermittedError if another agent has this name; an agent keeps a name that it has already.

    Revoked agents have no name any more.
    """
    identities = {each.identity_id: each for each in store.identities() if each.kind is IdentityKind.AGENT}
    names = {each.agent_id: {each.name} for each in store.agents()}
    for each in identities.values():
        names.setdefault(each.identity_id, set()).add(each.name)
    if not name or name in names.pop(agent_id, ()):
        return
    alike = _alike(name)
    for other, theirs in sorted(names.items()):
        identity = identities.get(other)
        if alike in map(_alike, theirs) and (identity is None or not identity.revoked_at_ms):
            remedy = "give it another with --name"
            if identity is not None:
                remedy += (
                    f"; if the other box is gone, an admin frees its name with: assay admin revoke {other}"
                )
            raise NotPermittedError(f"agent {name!r}", f"another agent has this name: {other}", remedy)


def require_vouched(store: SqlTransaction, agent_id: str, token_name: str) -> None:
    """Raises NotPermittedError for the id of an agent that only ever used the server's socket.

    Nobody can tell whether the joiner is that agent, so the token must be for it, by its name or id.
    """
    agent = store.agent(agent_id)
    if agent is None or token_name in (agent.name, agent.agent_id):
        return
    raise NotPermittedError(
        f"agent {agent_id}",
        f"the agent {agent.name!r} with this id has worked for this server without a certificate",
        f"if it is this box, ask an admin for its own token: assay admin token --role agent --name "
        f"{agent.name}; if not: assay-agent new-identity, and join again",
    )


def _alike(name: str) -> str:
    return unicodedata.normalize("NFKC", name).strip().casefold()
