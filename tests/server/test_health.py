"""The health service: what probes hear while a server works, cannot write, and ends."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from typer.testing import CliRunner

from assay_core.health_probe import is_serving
from assay_protos import (
    agent_pb2,
    archive_pb2,
    bundle_pb2,
    campaign_pb2,
    identity_pb2,
    ingest_pb2,
    lab_pb2,
    records_pb2,
)
from assay_sampling.errors import NotReadyError, ParameterError, ServerUnreachableError, StorageError
from assay_server.app import Server
from assay_server.cli.program import program
from assay_server.store.records import LocalRecordStore
from assay_server.store.sql import MetadataStore
from assay_server.store.sqlite import SqliteStore
from assay_server.watches import WritabilityWatch
from tests.support.metrics import value
from tests.support.server.server_support import eventually

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@contextmanager
def health_of(server: Server) -> Iterator[Any]:
    with grpc.insecure_channel(server.addresses[0]) as channel:
        yield health_pb2_grpc.HealthStub(channel)


def asked(service: str = "") -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=service)


def test_the_standard_service_answers_for_the_server_and_each_of_its_services(server: Server) -> None:
    with health_of(server) as health:
        assert health.Check(asked(), timeout=60).status == SERVING
        listed = health.List(health_pb2.HealthListRequest(), timeout=60).statuses
        modules = (
            agent_pb2, archive_pb2, bundle_pb2, campaign_pb2, identity_pb2, ingest_pb2, lab_pb2, records_pb2,
            health_pb2,
        )  # fmt: skip
        ours = {each.full_name for m in modules for each in m.DESCRIPTOR.services_by_name.values()}
        assert len(ours) == 10 and set(listed) == {"", *ours}
        assert {status.status for status in listed.values()} == {SERVING}
        for name in listed:
            assert health.Check(asked(name), timeout=60).status == SERVING
        with pytest.raises(grpc.RpcError) as caught:
            health.Check(asked("made.up"), timeout=60)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_whoever_watches_hears_of_a_disk_that_refuses_and_of_its_recovery(
    make_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server()
    full = threading.Event()

    def write(path: Path, data: bytes) -> None:
        if full.is_set():
            raise OSError(28, "No space left on device", str(path))
        path.write_bytes(data)

    monkeypatch.setattr("assay_server.watches.write_atomically", write)
    with health_of(server) as health:
        watch = health.Watch(asked(), timeout=60)
        assert next(watch).status == SERVING
        full.set()
        server.writability.refused()  # as a transaction would say
        assert next(watch).status == NOT_SERVING
        assert value(server.metrics.registry, "assay_server_serving") == 0
        full.clear()
        server.writability.refused()
        assert next(watch).status == SERVING
        assert value(server.metrics.registry, "assay_server_serving") == 1
        watch.cancel()


class _Store:
    """A store whose writer refuses while ``refuses`` is set."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.refuses = False

    def transaction(self) -> AbstractContextManager[Any]:
        if self.refuses:
            raise StorageError("metadata", "the database refused (database is locked)", "look")
        return self._store.transaction()


def test_a_store_that_refuses_counts_like_a_disk_that_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[bool] = []
    store = _Store(SqliteStore(None))
    watch = WritabilityWatch(tmp_path, heard.append, pause_seconds=60)
    with watch.watching(store, LocalRecordStore(tmp_path)):  # type: ignore[arg-type]
        eventually(lambda: heard == [True], "the first look")
        store.refuses = True
        watch.refused()
        eventually(lambda: heard == [True, False], "the second look")
        watch.refused()
        # Now the folder is gone, too; at once, because a look may be writing to it.
        tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-gone"))
        store.refuses = False
        watch.refused()
        time.sleep(0.1)
        assert heard == [True, False]
        tmp_path.mkdir()
        watch.refused()
        eventually(lambda: heard == [True, False, True], "the last look")
    assert caplog.text.count("cannot be written, so the server takes no work") == 1
    assert list(tmp_path.iterdir()) == []


def run_health(*arguments: str) -> Any:
    return CliRunner().invoke(program, ["health", *arguments], standalone_mode=False)


def test_the_probe_of_assay_server_tells_the_three_cases_apart(server: Server, short_path: Path) -> None:
    address = server.addresses[0]
    ended = run_health(address, "--json")
    assert json.loads(ended.stdout) == {"address": address, "serving": True}
    assert ended.exception is None
    assert server.rpc is not None
    server.rpc.drain(0)
    ended = run_health(address, "--json")
    assert json.loads(ended.stdout)["serving"] is False
    assert isinstance(ended.exception, NotReadyError)
    assert ended.exception.exit_code == 10
    server.stop()
    ended = run_health(address)
    assert isinstance(ended.exception, ServerUnreachableError)
    assert ended.exception.exit_code == 5
    assert isinstance(run_health("127.0.0.1:7170").exception, ParameterError)


def test_the_probe_understands_what_the_service_says(server: Server) -> None:
    with grpc.insecure_channel(server.addresses[0]) as channel:
        assert is_serving(channel, 10)
    told = health_pb2.HealthCheckResponse(status=SERVING).SerializeToString()
    assert told == b"\x08\x01"
