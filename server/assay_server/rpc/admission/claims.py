"""Checks what a decoded request claims: an agent speaks for itself, a submitter acts on their own campaigns,
and nobody hears of campaigns of projects that are not theirs.

It runs after :mod:`assay_server.rpc.admission.guard` has established the caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from assay_sampling.errors import AssayError
from assay_server.access.audit import note_request
from assay_server.access.caller import Caller, current_caller
from assay_server.access.table import (
    Rule,
    campaign_named,
    require_own,
    require_own_sender,
    rule_of,
    run_named,
)
from assay_server.access.visibility import sight_of
from assay_server.campaigns.errors import unknown_campaign, unknown_run
from assay_server.rpc.errors import abort
from assay_server.rpc.wrapping import Context, Continuation, receiving
from assay_server.store.sql import MetadataStore


class Claims(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """The innermost interceptor: it sees messages, not bytes."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        rule = rule_of(method)
        if handler is None or rule is None or not (rule.sender or rule.names_campaign or rule.audited):
            return handler

        async def received(request: Any, context: Context) -> Any:
            caller = current_caller()
            if handler.request_streaming:
                return request if caller is None else self._each_checked(request, rule, caller)
            note_request(request)
            if caller is not None:
                try:
                    await self._check(request, rule, caller)
                except AssayError as error:
                    await abort(context, error, method)
            return request

        return receiving(handler, received)

    async def _each_checked(
        self, requests: AsyncIterator[Any], rule: Rule, caller: Caller
    ) -> AsyncIterator[Any]:
        """The messages; one with a false claim raises an error in the servicer that reads them."""
        async for message in requests:
            await self._check(message, rule, caller)
            yield message

    async def _check(self, message: Any, rule: Rule, caller: Caller) -> None:
        """Raises NotPermittedError if the message claims what is not the caller's, and UnknownThingError if
        it is about a campaign that the caller may not know of."""
        require_own_sender(rule, caller, message)
        if rule.names_campaign and (rule.own_campaign or not sight_of(caller).everything):
            await asyncio.to_thread(self._look_at_campaign, rule, caller, message)

    def _look_at_campaign(self, rule: Rule, caller: Caller, message: Any) -> None:
        named = campaign_named(rule, message), run_named(rule, message)
        require_belonging(self._metadata, rule, caller, *named)


def require_belonging(
    metadata: MetadataStore, rule: Rule, caller: Caller, campaign_id: str, run_id: str = ""
) -> None:
    """Raises UnknownThingError for a campaign (or run) that the caller may not know of, and
    NotPermittedError for one that is not a submitter's own, where the rule asks for that. May block."""
    with metadata.snapshot() as store:
        campaign_id = (store.campaign_of(run_id) or "") if run_id else campaign_id
        whose = store.belongs_to(campaign_id)
    sight = sight_of(caller)
    # What does not exist is refused here, too: a handler may first find another fault of the request.
    if not sight.everything and (whose is None or not sight.sees(whose)):
        raise unknown_run(run_id) if rule.seen_run else unknown_campaign(campaign_id)
    if whose is not None:
        require_own(rule, caller, campaign_id, whose.owner)
