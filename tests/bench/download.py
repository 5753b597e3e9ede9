"""Published launches on another disk or in another process: the Parquet files copied, fetched, and streamed.

The server is a process of its own, on a Unix socket, and has published and analysed the launches before the
clock starts.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq

import assay
from assay_client.remote.client import Client
from assay_client.remote.connection import Connection
from assay_client.remote.fetching import fetch_campaign
from assay_core.files.launch_file import new_launch_file
from tests.bench.made_data import SCHEMA, light_batches
from tests.bench.measure import Measurement
from tests.bench.served import cpu_seconds, served

_CAMPAIGN = """\
campaign: download
synthetic: true
workloads:
  - name: long
    recordings:
      - {device: V100, light: launches.parquet}
analysis:
  methods:
    - random: {launches: 100}
"""


@contextmanager
def _publishing(folder: str, launches: int) -> Iterator[tuple[str, str]]:
    """A server with a campaign of so many published launches: its address and the campaign's id."""
    work = Path(folder)
    with new_launch_file(work / "launches.parquet", SCHEMA) as writer:
        for batch in light_batches(launches):
            writer.write(batch)
    (work / "campaign.yaml").write_text(_CAMPAIGN)
    with assay.Server.local(work / "state") as server:
        campaign = server.submit(work / "campaign.yaml").wait()
        assert campaign.state == "done"
        yield server.address, campaign.id


def _measured(launches: int, take: Callable[[Path, str, str], int]) -> Measurement:
    with tempfile.TemporaryDirectory() as folder, served(_publishing, folder, launches) as server:
        before, ours = server.used(), cpu_seconds()
        began = time.perf_counter()
        taken = take(Path(folder), *server.ready)
        seconds = time.perf_counter() - began
        after = server.used()
        assert taken == launches
        return Measurement(
            launches,
            seconds,
            {
                "receiver_cpu_seconds": cpu_seconds() - ours,
                "server_cpu_seconds": after.cpu_seconds - before.cpu_seconds,
                "server_peak_bytes": float(after.peak_bytes),
            },
        )


def copied(launches: int) -> Measurement:
    """The published files, copied on the disk of the server."""

    def copy(folder: Path, _address: str, _campaign: str) -> int:
        target = folder / "copied"
        shutil.copytree(folder / "state" / "server" / "records", target)
        return sum(pq.ParquetFile(file).metadata.num_rows for file in target.rglob("*.parquet"))

    return _measured(launches, copy)


def fetched(launches: int) -> Measurement:
    """``assay lab fetch``: the files over gRPC, each checked against its hash and made durable."""

    def fetch(folder: Path, address: str, campaign: str) -> int:
        with Client(address) as client, Connection(address) as connection:
            found = fetch_campaign(client, connection, campaign, folder / "fetched", lambda _line: None)
        return sum(file.launches for file in found.files)

    return _measured(launches, fetch)


def streamed(launches: int) -> Measurement:
    """``Campaign.records().batches()``: record batches over gRPC, decoded and with names as text."""

    def stream(_folder: Path, address: str, campaign: str) -> int:
        with assay.Server(address) as server:
            return sum(batch.num_rows for batch in server.campaign(campaign).records().batches())

    return _measured(launches, stream)


def streamed_columns(launches: int) -> Measurement:
    """Two columns of them."""

    def stream(_folder: Path, address: str, campaign: str) -> int:
        with assay.Server(address) as server:
            records = server.campaign(campaign).records()
            return sum(batch.num_rows for batch in records.batches(["kernel", "duration_ns"]))

    return _measured(launches, stream)
