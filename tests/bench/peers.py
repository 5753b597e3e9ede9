"""The peers that ingest is measured beside: Arrow Flight, and one launch a gRPC message.

Both end where we end: launches as one fsynced zstd Parquet file in row groups of 128 k.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyarrow import flight

from assay_sampling.launches.parquet import encoding_of
from tests.bench.made_data import SCHEMA, light_batches
from tests.bench.measure import Measurement
from tests.bench.served import cpu_seconds, served

ROW_GROUP_LAUNCHES = 131_072
MANY = 8


def write_durably(batches: Iterator[pa.RecordBatch], path: Path) -> None:
    """The common end state: zstd Parquet, row groups of 128 k launches, file and directory fsynced."""
    with pq.ParquetWriter(path, SCHEMA, **encoding_of(SCHEMA)) as writer:
        held: list[pa.RecordBatch] = []
        rows = 0
        for batch in batches:
            held.append(batch)
            rows += batch.num_rows
            while rows >= ROW_GROUP_LAUNCHES:
                table = pa.Table.from_batches(held)
                writer.write_table(table.slice(0, ROW_GROUP_LAUNCHES), row_group_size=ROW_GROUP_LAUNCHES)
                held = table.slice(ROW_GROUP_LAUNCHES).to_batches()
                rows -= ROW_GROUP_LAUNCHES
        if held:
            writer.write_table(pa.Table.from_batches(held), row_group_size=ROW_GROUP_LAUNCHES)
    for target in (path, path.parent):
        descriptor = os.open(target, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


class _FlightServer(flight.FlightServerBase):
    def __init__(self, folder: Path) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._folder = folder

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        write_durably((chunk.data for chunk in reader), self._folder / descriptor.path[0].decode())
        writer.write(b"durable")


@contextmanager
def flight_server(folder: Path) -> Iterator[int]:
    """A Flight server in this process; yields its port."""
    server = _FlightServer(folder)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    yield server.port
    server.shutdown()
    thread.join()


def arrow_flight(launches: int) -> Measurement:
    """Arrow Flight ``do_put``, from Arrow IPC on the client's disk to the durable end state."""
    return _flight(launches, clients=1)


def arrow_flight_many(launches: int) -> Measurement:
    """Eight clients at once, each with its share of the launches and a file of its own."""
    return _flight(launches, clients=MANY)


def _flight(launches: int, clients: int) -> Measurement:
    shares = [launches // clients + (n < launches % clients) for n in range(clients)]
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for number, share in enumerate(shares):
            with pa.ipc.new_stream(root / f"{number}.arrow", SCHEMA) as sink:
                for batch in light_batches(share):
                    sink.write_batch(batch.records)
        with served(flight_server, root) as server, ThreadPoolExecutor(clients) as threads:
            own, theirs = cpu_seconds(), server.used()
            began = time.perf_counter()
            list(threads.map(lambda n: _put(server.ready, root, n), range(clients)))
            seconds = time.perf_counter() - began
            extra = {
                "sender_cpu_seconds": cpu_seconds() - own,
                "server_cpu_seconds": server.used().cpu_seconds - theirs.cpu_seconds,
                "server_peak_bytes": float(server.used().peak_bytes),
            }
        for number, share in enumerate(shares):
            assert pq.read_metadata(root / f"{number}.parquet").num_rows == share
        return Measurement(launches, seconds, extra)


def _put(port: int, root: Path, number: int) -> None:
    client = flight.connect(f"grpc://127.0.0.1:{port}")
    with pa.ipc.open_stream(pa.memory_map(str(root / f"{number}.arrow"))) as reader:
        descriptor = flight.FlightDescriptor.for_path(f"{number}.parquet")
        writer, answers = client.do_put(descriptor, reader.schema)
        for batch in reader:
            writer.write_batch(batch)
        writer.done_writing()
        assert answers.read().to_pybytes() == b"durable"
        writer.close()
    client.close()


def _launch_message() -> type:
    """A protobuf message with one optional 64-bit field for each base column."""
    field_types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="bench.proto", package="bench", syntax="proto3")
    message = file.message_type.add(name="Launch")
    for number, item in enumerate(SCHEMA, start=1):
        kind = field_types.TYPE_UINT64 if pa.types.is_unsigned_integer(item.type) else field_types.TYPE_INT64
        message.field.add(name=item.name, number=number, type=kind, label=field_types.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Launch"))


def one_launch_per_message(launches: int) -> Measurement:
    """One launch a message on one client stream, one fsync at the end."""
    launch_class = _launch_message()
    columns = SCHEMA.names
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "out.parquet"

        def batches(messages: Iterator[Any]) -> Iterator[pa.RecordBatch]:
            held: list[Any] = []
            for message in messages:
                held.append(message)
                if len(held) == ROW_GROUP_LAUNCHES:
                    yield as_batch(held)
                    held = []
            if held:
                yield as_batch(held)

        def as_batch(messages: list[Any]) -> pa.RecordBatch:
            arrays = [pa.array([getattr(m, item.name) for m in messages], item.type) for item in SCHEMA]
            return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

        def put(messages: Iterator[Any], context: grpc.ServicerContext) -> bytes:
            write_durably(batches(messages), target)
            return b"durable"

        handler = grpc.method_handlers_generic_handler(
            "bench.Ingest",
            {
                "Put": grpc.stream_unary_rpc_method_handler(
                    put, request_deserializer=launch_class.FromString, response_serializer=bytes
                )
            },
        )
        server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[handler])
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        rows = [r for b in light_batches(launches) for r in b.records.to_pylist()]

        def messages() -> Iterator[Any]:
            for row in rows:
                yield launch_class(**{name: row[name] for name in columns if row[name] is not None})

        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            call = channel.stream_unary(
                "/bench.Ingest/Put",
                request_serializer=launch_class.SerializeToString,
                response_deserializer=bytes,
            )
            began = time.perf_counter()
            assert call(messages()) == b"durable"
            seconds = time.perf_counter() - began
        server.stop(None).wait()
        assert pq.read_metadata(target).num_rows == launches
        return Measurement(launches, seconds, {})
