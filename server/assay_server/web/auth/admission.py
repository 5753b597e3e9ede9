"""Who calls, and whether they may: each request of a browser stands for a call of the access table.

A route has no rule of its own. It names the RPC that does the same, and the caller needs the role, the sight
and the ownership that the RPC asks for; a changing one leaves the same entry in the audit log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from assay_core.identity.roles import OWNER_NAME, Role
from assay_sampling.errors import AssayError, NotIdentifiedError, NotPermittedError
from assay_server.access.audit import DONE, begin_note, forget_note, note_caller, note_subject
from assay_server.access.caller import OWNER_ID, Caller, How, called_by
from assay_server.access.table import require_allowed, rule_of
from assay_server.rpc.errors import status_code
from assay_server.rpc.interceptors import Access, require_belonging
from assay_server.store.people import WebLogin

Answer = TypeVar("Answer")

_LOG_IN = "log in again: assay lab login --web"


def caller_of_session(access: Access, session: WebLogin | None, address: str) -> Caller:
    """Whose session it is, as the identity is now; does not block.

    Raises NotIdentifiedError without a session, NotPermittedError for one of a revoked identity.
    """
    if session is None:
        raise NotIdentifiedError("session", "there is none, or it has ended", _LOG_IN)
    if session.identity_id == OWNER_ID:  # its link was asked for on the server's own socket
        return Caller(OWNER_ID, OWNER_NAME, Role.ADMIN, how=How.WEB, address=address)
    identity = access.directory.identity(session.identity_id)
    if identity is None:
        raise NotIdentifiedError("session", "the server does not know its identity", _LOG_IN)
    who = f"{identity.kind} {identity.name}"
    if identity.revoked_at_ms:
        raise NotPermittedError(who, "its identity was revoked", "ask an admin of the server")
    if access.directory.is_withdrawn(session.serial):
        raise NotPermittedError(who, "the certificate of its link was withdrawn", _LOG_IN)
    return Caller(
        identity.identity_id,
        identity.name,
        identity.role,
        identity.project,
        how=How.WEB,
        address=address,
        serial=session.serial,
    )


def call_as(
    access: Access,
    method: str,
    caller: Caller,
    answer: Callable[[], Answer],
    *,
    campaign_id: str = "",
    run_id: str = "",
    about: str = "",
) -> Answer:
    """What ``answer`` returns, called in the caller's name; may block.

    Args:
        method: the call of the access table that it stands for, as ``assay.v1.Service/Name``.
        caller: who calls.
        answer: a handler with its request.
        campaign_id, run_id: what the request is about.
        about: what the audit log says it was about.

    Raises what the rule refuses, and what the handler raises.
    """

    def answered() -> Answer:
        _require(access, method, caller, campaign_id, run_id)
        return answer()

    with called_by(caller):
        if not rule_of(method).audited:
            return answered()
        note = begin_note(method.rpartition("/")[2], caller.address)
        note_caller(caller)
        note_subject(about)
        try:
            result = answered()
        except Exception as error:
            forget_note()
            outcome, detail = "internal", type(error).__name__
            if isinstance(error, AssayError):
                outcome, detail = status_code(error).name.lower(), str(error)
            access.audit.end(note, outcome, detail)
            raise
        forget_note()
        access.audit.end(note, DONE, "")
        return result


def may_call(access: Access, method: str, caller: Caller, campaign_id: str = "") -> bool:
    """Whether a call would be let through; may block."""
    try:
        _require(access, method, caller, campaign_id)
    except AssayError:
        return False
    return True


def _require(access: Access, method: str, caller: Caller, campaign_id: str, run_id: str = "") -> None:
    rule = rule_of(method)
    require_allowed(rule, caller, method)
    require_belonging(access.metadata, rule, caller, campaign_id, run_id)
