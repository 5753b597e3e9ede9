"""Checks what a decoded request claims: an agent speaks for itself, a submitter acts on their own campaigns.

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
from assay_server.access.table import Rule, campaign_to_own, require_own, require_own_sender, rule_of
from assay_server.rpc.errors import abort
from assay_server.rpc.wrapping import Context, Continuation, receiving
from assay_server.store.protocols import MetadataStore


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
        if handler is None or rule is None or not (rule.sender or rule.own_campaign or rule.audited):
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
        """The messages; one with a false claim raises NotPermittedError in the servicer that reads them."""
        async for message in requests:
            await self._check(message, rule, caller)
            yield message

    async def _check(self, message: Any, rule: Rule, caller: Caller) -> None:
        """Raises NotPermittedError if the message claims what is not the caller's."""
        require_own_sender(rule, caller, message)
        campaign_id = campaign_to_own(rule, caller, message)
        if campaign_id is not None:
            owner = await asyncio.to_thread(self._owner_of, campaign_id)
            # Of a campaign that does not exist the handler says so.
            if owner is not None:
                require_own(caller, campaign_id, owner)

    def _owner_of(self, campaign_id: str) -> str | None:
        with self._metadata.snapshot() as store:
            return store.campaign_owner(campaign_id)
