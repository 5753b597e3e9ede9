"""Peers that do not read, connect too often or call too much are cut off, and others are not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from assay_core.identity.roles import Role
from assay_core.records.archive import ExportRequest, LaunchesAsked, RecordWanted
from assay_core.records.attempt import AttemptKey, Claim
from assay_core.records.campaign import ReportFormat, ReportRequest
from assay_core.records.upload import BundleWanted
from assay_sampling.errors import StorageError
from assay_server.access.caller import Caller, How, set_caller
from assay_server.app import Server
from assay_server.limits import (
    DEFAULT_LIMITS,
    ArchiveLimits,
    BundleLimits,
    CallerLimits,
    CallLimits,
    QueryLimits,
)
from assay_server.rpc.errors import abort
from assay_server.rpc.services import services_of
from assay_server.rpc.threads import Threads, send_in_time
from tests.support.identity.tls_lab import channel_of, joined, tls_server
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import eventually


def test_who_reads_nothing_is_cut_off_and_told_so_when_it_reads_again(short_path: Path) -> None:
    left = asyncio.Event()

    class Service(grpc.GenericRpcHandler):
        def service(self, _details: Any) -> Any:
            async def stream(_request: Any, context: Any) -> AsyncIterator[bytes]:
                try:
                    while True:
                        await send_in_time(context, b"x" * 20_000, 0.2)
                except StorageError as error:
                    await abort(context, error, "stream")
                finally:
                    left.set()
                yield b""

            return grpc.unary_stream_rpc_method_handler(stream)

    async def test() -> tuple[grpc.StatusCode, str]:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((Service(),))
        server.add_insecure_port(f"unix:{short_path}/s")
        await server.start()
        async with grpc.aio.insecure_channel(f"unix:{short_path}/s") as channel:
            stream = channel.unary_stream("/a/b")(b"")
            await stream.read()
            await asyncio.wait_for(left.wait(), 30)  # meanwhile it reads nothing
            with contextlib.suppress(grpc.aio.AioRpcError):
                while await stream.read() is not grpc.aio.EOF:
                    pass
            code, details = await stream.code(), await stream.details()
        await server.stop(0)
        return code, details

    code, details = asyncio.run(test())
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "its receiver took nothing for 0.2 s" in details


class DeafContext:
    """The context of a call whose peer takes nothing."""

    async def write(self, _message: Any) -> None:
        await asyncio.Event().wait()


class Answers:
    """A handler that has an answer to everything."""

    def __getattr__(self, _name: str) -> Callable[..., Any]:
        class Told:
            ended = False

            def to_proto(self) -> bytes:
                return b""

        return lambda _asked: (
            iter([Told()]) if _name in {"report", "export", "read", "launches", "fetch"} else Told()
        )


class EveryHandler:
    """Handlers that have an answer to everything."""

    def __getattr__(self, _name: str) -> Any:
        return Mock(enrolment=Answers()) if _name == "identified" else Answers()


@pytest.mark.parametrize("call", ["GetReport", "Export", "ReadRecords", "StreamLaunches", "FetchBundle"])
def test_every_answer_in_parts_cuts_off_who_reads_nothing_and_frees_its_place(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QueryLimits, "answer_stalled_seconds", 0)
    monkeypatch.setattr(ArchiveLimits, "archive_idle_seconds", 0)
    monkeypatch.setattr(BundleLimits, "bundle_idle_seconds", 0)
    monkeypatch.setattr(BundleLimits, "bundle_streams", 1)
    queries = QueryLimits(download_streams=1)
    limits = replace(DEFAULT_LIMITS, queries=queries, archives=ArchiveLimits(archive_streams=1))
    request = {
        "GetReport": ReportRequest("c-1", ReportFormat("json")),
        "Export": ExportRequest("c-1"),
        "ReadRecords": RecordWanted("c-1", "c-1.0000", 0),
        "StreamLaunches": LaunchesAsked("c-1", "c-1.0000"),
        "FetchBundle": BundleWanted(
            Claim(AttemptKey("c-1.0000", 0, 1, 1), "agent", "session", b"secret"), "0" * 64
        ),
    }[call].to_proto()

    async def test() -> None:
        threads = Threads.of(limits)
        services = services_of(cast(Any, EveryHandler()), threads, limits).values()
        [method] = [calls[call] for calls in services if call in calls]
        set_caller(Caller("owner", "owner", Role.ADMIN, how=How.SOCKET))
        for _ in range(2):  # the second finds the place free
            stream = cast(Any, method).unary_stream(request, DeafContext())
            with pytest.raises(StorageError, match="its receiver took nothing for 0 s"):
                await anext(stream)
        threads.close()

    asyncio.run(test())


def test_connections_beyond_the_limit_are_closed_at_once(make_server: Callable[..., Server]) -> None:
    limits = replace(DEFAULT_LIMITS, calls=CallLimits(connections=3))
    path = make_server(limits=limits).addresses[0].removeprefix("unix:")

    def connected(stack: contextlib.ExitStack) -> bool:
        """Whether the server speaks to a new connection."""
        made = stack.enter_context(socket.socket(socket.AF_UNIX))
        made.settimeout(20)
        made.connect(path)
        try:
            return bool(made.recv(1))
        except ConnectionResetError:
            return False

    with contextlib.ExitStack() as stack:
        assert [connected(stack) for _ in range(5)] == [True] * 3 + [False] * 2
    with contextlib.ExitStack() as again:
        eventually(lambda: connected(again), "a place for a connection")


def listed(who: PlayingAgent) -> grpc.StatusCode:
    try:
        who.listed()
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_quotas_of_one_caller_over_tls_and_another_is_not_bounded_by_them(
    make_server: Callable[..., Server], short_path: Path
) -> None:
    callers = CallerLimits(caller_calls=2, caller_calls_per_second=1)
    server = tls_server(make_server, short_path, limits=replace(DEFAULT_LIMITS, callers=callers))
    with contextlib.ExitStack() as stack:

        def member(name: str) -> PlayingAgent:
            channel = channel_of(server, joined(server, Role.VIEWER, name))
            return stack.enter_context(PlayingAgent.over(channel, name))

        vera, otto = member("vera"), member("otto")
        health = health_pb2_grpc.HealthStub(vera.channel)
        watches = [health.Watch(health_pb2.HealthCheckRequest(), timeout=60) for _ in range(2)]
        for each in watches:
            next(each)
        # Both of her calls are under way.
        assert listed(vera) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert listed(otto) is grpc.StatusCode.OK
        for each in watches:
            each.cancel()
        eventually(lambda: listed(vera) is grpc.StatusCode.OK, "an answer after her watches have ended")
        # One a second, after a burst of five.
        codes = [listed(vera) for _ in range(50)]
        assert grpc.StatusCode.RESOURCE_EXHAUSTED in codes
        assert listed(otto) is grpc.StatusCode.OK
