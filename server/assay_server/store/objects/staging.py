"""Segments in a bucket until their attempt is published: those that become durable together are one object.

    staging/<run_id>/slice-00000-attempt-0001/000003-9d5c...            a segment: names, launches; its hash
    staging/<run_id>/slice-00000-attempt-0001/000003-000006-98304-9d5c...
                                      four of them, the first one from byte 98,304 of the attempt on

A request costs an object store more than the bytes of a segment. So a server also remembers which objects it
made for an attempt: it removes them without a list if they are all of that attempt's. What it does not
remember, another server's or from before a restart, it lists.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from assay_core.records.attempt import AttemptKey
from assay_server.store.model import HeldSegment, Segment
from assay_server.store.objects.bucket import Bucket
from assay_server.store.objects.refusals import MissingObjectError
from assay_server.store.protocols import Held
from assay_server.store.records import DamagedSegmentError, checked_parts

_MOST_TOGETHER_BYTES = 8 << 20
_MOST_REMEMBERED = 4_096
_TOGETHER = re.compile(r"(\d{6,})-(\d{6,})-(\d+)-[0-9a-f]{32}")

Staged = tuple[Segment, bytes, bytes]


def folder_of(key: AttemptKey) -> str:
    """Where the segments of an attempt are."""
    return f"staging/{key.run_id}/slice-{key.slice_index:05d}-attempt-{key.attempt:04d}"


@dataclass(frozen=True)
class _Object:
    """An object with the segments ``first`` to ``last``, which begins at a byte of the attempt."""

    name: str
    first: int
    last: int
    offset_bytes: int


@dataclass
class _Remembered:
    """The objects that this server made for an attempt; ``complete``: nobody else made one."""

    objects: list[_Object] = field(default_factory=list)
    complete: bool = False


class StagedSegments:
    """The segments below ``staging/`` of a bucket, which ``url`` names to people. Thread-safe."""

    def __init__(self, bucket: Bucket, url: str) -> None:
        self._bucket, self._url = bucket, url
        self._lock = threading.Lock()
        self._remembered: OrderedDict[AttemptKey, _Remembered] = OrderedDict()

    def stage(self, segments: Sequence[Staged]) -> None:
        """Make segments with their names and launches durable. Raises StorageError."""
        made = [(_object_of(members), members) for members in _together(segments)]
        self._bucket.put_all_new(
            [(each.name, b"".join(n + data for _, n, data in members)) for each, members in made]
        )
        for each, members in made:
            self._remember(_key(members[0][0])).objects.append(each)

    def read(self, segment: Segment) -> HeldSegment:
        """The parts of a segment as they were acknowledged. Raises DamagedSegmentError, StorageError."""
        refused = DamagedSegmentError(
            f"{self._url}/{_alone(segment)}", "it is gone", "check the bucket; the attempt is run again"
        )
        for each in self._candidates(segment):
            begin = segment.offset_bytes - each.offset_bytes
            try:
                data = self._bucket.get_part(each.name, begin, segment.end_bytes - segment.offset_bytes)
                parts = HeldSegment(data[: segment.names_bytes], data[segment.names_bytes :])
                return checked_parts(segment, parts, f"{self._url}/{each.name}")
            except MissingObjectError:
                continue
            except DamagedSegmentError as error:
                refused = error
        raise refused

    def _candidates(self, segment: Segment) -> Iterator[_Object]:
        """The objects that may hold a segment, those first that need no list."""
        with self._lock:
            here = self._remembered.get(_key(segment), _Remembered())
            yield from [each for each in here.objects if each.first <= segment.index <= each.last]
        yield _Object(_alone(segment), segment.index, segment.index, segment.offset_bytes)
        for name in self.names(_key(segment)):
            found = _TOGETHER.fullmatch(name.rpartition("/")[2])
            if found and int(found[1]) <= segment.index <= int(found[2]):
                yield _Object(name, int(found[1]), int(found[2]), int(found[3]))

    def publishes(self, key: AttemptKey, segments: Sequence[Segment], held: Held) -> None:
        """Say what an attempt that is published consists of: what the metadata hold is in no object."""
        indices = {segment.index for segment in segments} - set(held)
        here = self._remember(_without_token(key))
        with self._lock:
            covered = {index for each in here.objects for index in range(each.first, each.last + 1)}
            here.complete = indices <= covered

    def discard(self, key: AttemptKey) -> None:
        """Remove the segments of an attempt."""
        with self._lock:
            here = self._remembered.pop(_without_token(key), _Remembered())
        names = [each.name for each in here.objects] if here.complete else self.names(key)
        self._bucket.remove(names)

    def names(self, key: AttemptKey) -> list[str]:
        """All objects of an attempt."""
        return [each.name for each in self._bucket.listed(folder_of(key))]

    def _remember(self, key: AttemptKey) -> _Remembered:
        with self._lock:
            found = self._remembered.setdefault(key, _Remembered())
            self._remembered.move_to_end(key)
            while len(self._remembered) > _MOST_REMEMBERED:
                self._remembered.popitem(last=False)
            return found


def _together(segments: Sequence[Staged]) -> Iterator[list[Staged]]:
    """Segments that follow one another in an attempt, in pieces of bounded size."""
    by_attempt: dict[AttemptKey, list[Staged]] = {}
    for each in segments:
        by_attempt.setdefault(_key(each[0]), []).append(each)
    for members in by_attempt.values():
        piece = members[:1]
        for each in members[1:]:
            first, last, this = piece[0][0], piece[-1][0], each[0]
            follows = this.index == last.index + 1 and this.offset_bytes == last.end_bytes
            if follows and this.end_bytes - first.offset_bytes <= _MOST_TOGETHER_BYTES:
                piece.append(each)
            else:
                yield piece
                piece = [each]
        yield piece


def _object_of(members: Sequence[Staged]) -> _Object:
    """The object of some segments; its name says its place, and what is in it."""
    first, last = members[0][0], members[-1][0]
    if first is last:
        return _Object(_alone(first), first.index, first.index, first.offset_bytes)
    place = f"{first.index:06d}-{last.index:06d}-{first.offset_bytes}"
    name = f"{folder_of(_key(first))}/{place}-{_hash_of([each[0] for each in members])}"
    return _Object(name, first.index, last.index, first.offset_bytes)


def _alone(segment: Segment) -> str:
    """The name of the object of one segment."""
    return f"{folder_of(_key(segment))}/{segment.index:06d}-{_hash_of([segment])}"


def _hash_of(segments: Sequence[Segment]) -> str:
    parts = b"".join(each.names_hash + each.launches_hash for each in segments)
    return hashlib.blake2b(parts, digest_size=16).hexdigest()


def _key(segment: Segment) -> AttemptKey:
    return AttemptKey(segment.run_id, segment.slice, segment.attempt, 0)


def _without_token(key: AttemptKey) -> AttemptKey:
    return AttemptKey(key.run_id, key.slice_index, key.attempt, 0)
