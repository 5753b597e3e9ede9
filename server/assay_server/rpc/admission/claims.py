"""Checks what a decoded request claims: an agent speaks for itself, a submitter acts on their own campaigns.

It runs after :mod:`assay_server.rpc.admission.guard` has established the caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from assay_sampling.errors import AssayError
from assay_server.access.audit import note_request
from assay_server.access.caller import Caller, current_caller
from assay_server.access.table import Rule, campaign_to_own, require_own, require_own_sender, rule_of
from assay_server.rpc.errors import abort
from assay_server.store.protocols import MetadataStore

Context = grpc.aio.ServicerContext[Any, Any]


class Claims(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """The innermost interceptor: it sees messages, not bytes."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        rule = rule_of(method)
        if handler is None or rule is None or not (rule.sender or rule.own_campaign or rule.audited):
            return handler
        if handler.request_streaming:
            return _streaming(handler, rule)
        if handler.response_streaming:
            return _answered_in_parts(handler)
        return _unary(handler, rule, method, self._metadata)


def _streaming(handler: Any, rule: Rule) -> Any:
    async def checked(requests: AsyncIterator[Any], caller: Caller) -> AsyncIterator[Any]:
        async for message in requests:
            require_own_sender(rule, caller, message)
            yield message

    async def call(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        caller = current_caller()
        messages = requests if caller is None else checked(requests, caller)
        async for response in handler.stream_stream(messages, context):
            yield response

    return grpc.stream_stream_rpc_method_handler(
        call, handler.request_deserializer, handler.response_serializer
    )


def _answered_in_parts(handler: Any) -> Any:
    async def call(request: Any, context: Context) -> AsyncIterator[Any]:
        note_request(request)
        async for response in handler.unary_stream(request, context):
            yield response

    return grpc.unary_stream_rpc_method_handler(
        call, handler.request_deserializer, handler.response_serializer
    )


def _unary(handler: Any, rule: Rule, method: str, metadata: MetadataStore) -> Any:
    def owner_of(campaign_id: str) -> str | None:
        with metadata.snapshot() as store:
            return store.campaign_owner(campaign_id)

    async def call(request: Any, context: Context) -> Any:
        caller = current_caller()
        note_request(request)
        if caller is not None:
            try:
                require_own_sender(rule, caller, request)
                campaign_id = campaign_to_own(rule, caller, request)
                if campaign_id is not None:
                    owner = await asyncio.to_thread(owner_of, campaign_id)
                    # Of a campaign that does not exist the handler says so.
                    if owner is not None:
                        require_own(caller, campaign_id, owner)
            except AssayError as error:
                await abort(context, error, method)
        return await handler.unary_unary(request, context)

    return grpc.unary_unary_rpc_method_handler(
        call, handler.request_deserializer, handler.response_serializer
    )
