"""Segments in a bucket until their attempt is published: those that become durable together are one object.

    staging/<run_id>/slice-00000-attempt-0001/000003-9d5c...            a segment: names, launches; its hash
    staging/<run_id>/slice-00000-attempt-0001/000003-000006-98304-9d5c...
                                      four of them, the first one from byte 98,304 of the attempt on

A request costs an object store more than the bytes of a segment, so a server remembers the objects that it
made or listed, and reads a segment by one request. To remove the segments of an attempt it always lists them:
this server before a restart, the one before it, or a request that failed may have made objects that nobody
recorded.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from assay_core.records.attempt import AttemptKey
from assay_server.store.model import Segment, SegmentParts
from assay_server.store.objects.bucket import Bucket
from assay_server.store.objects.refusals import MissingObjectError
from assay_server.store.records import DamagedSegmentError, checked_parts

_MOST_TOGETHER_BYTES = 8 << 20
_MOST_REMEMBERED = 4_096
_ALONE = re.compile(r"([0-9]{6,})-[0-9a-f]{32}")
_TOGETHER = re.compile(r"([0-9]{6,})-([0-9]{6,})-([0-9]+)-[0-9a-f]{32}")

Staged = tuple[Segment, bytes, bytes]


def folder_of(key: AttemptKey) -> str:
    """Where the segments of an attempt are."""
    return f"staging/{key.run_id}/slice-{key.slice_index:05d}-attempt-{key.attempt:04d}"


@dataclass(frozen=True)
class _Object:
    """An object with the segments ``first`` to ``last``, which begins at a byte of the attempt; None: one
    segment alone, at the place that its record says."""

    name: str
    first: int
    last: int
    offset_bytes: int | None

    def begin_of(self, segment: Segment) -> int:
        """Where a segment begins in it; negative if it cannot be there.

        Such a group is of another attempt of the same number, from before a restore of an older database.
        """
        return 0 if self.offset_bytes is None else segment.offset_bytes - self.offset_bytes


@dataclass
class _Remembered:
    """What this server knows of the objects of an attempt.

    ``sent``: those it tried to make, by name. ``listed``: those it found there.
    """

    sent: dict[str, _Object] = field(default_factory=dict)
    listed: dict[str, _Object] = field(default_factory=dict)


class StagedSegments:
    """The segments below ``staging/`` of a bucket, which ``url`` names to people. Thread-safe."""

    def __init__(self, bucket: Bucket, url: str) -> None:
        self._bucket, self._url = bucket, url
        self._lock = threading.Lock()
        self._remembered: OrderedDict[AttemptKey, _Remembered] = OrderedDict()

    def stage(self, segments: Sequence[Staged]) -> None:
        """Make segments with their names and launches durable. Raises StorageError."""
        made = [(_object_of(members), members) for members in _together(segments)]
        # Before they are sent: a request that fails may have made its object all the same.
        with self._lock:
            for each, members in made:
                self._of(_key(members[0][0])).sent[each.name] = each
        self._bucket.put_all_new(
            [(each.name, b"".join(n + data for _, n, data in members)) for each, members in made]
        )

    def read(self, segment: Segment) -> SegmentParts:
        """The parts of a segment as they were acknowledged. Raises DamagedSegmentError, StorageError."""
        refused = DamagedSegmentError(
            f"{self._url}/{_alone(segment)}", "it is gone", "check the bucket; the attempt is run again"
        )
        for each in self._candidates(segment):
            length = segment.end_bytes - segment.offset_bytes
            try:
                data = self._bucket.get_part(each.name, each.begin_of(segment), length)
                parts = SegmentParts(data[: segment.names_bytes], data[segment.names_bytes :])
                return checked_parts(segment, parts, f"{self._url}/{each.name}")
            except MissingObjectError:
                continue
            except DamagedSegmentError as error:
                refused = error
        raise refused

    def _candidates(self, segment: Segment) -> Iterator[_Object]:
        """The objects that may hold a segment: first those that are known, then others that a list has."""
        tried: set[str] = set()
        for look in (self._known, self._listed):
            for name, each in look(_key(segment)).items():
                if name not in tried and _may_hold(each, segment):
                    tried.add(name)
                    yield each

    def _known(self, key: AttemptKey) -> dict[str, _Object]:
        with self._lock:
            here = self._remembered.get(key, _Remembered())
            return here.sent | here.listed

    def _listed(self, key: AttemptKey) -> dict[str, _Object]:
        """The objects of an attempt that are there now, and remember them."""
        found = {name: each for name in self.names(key) if (each := _named(name))}
        with self._lock:
            self._of(key).listed = found
        return found

    def discard(self, key: AttemptKey) -> None:
        """Remove the segments of an attempt."""
        with self._lock:
            self._remembered.pop(_without_token(key), None)
        self._bucket.remove(self.names(key))

    def names(self, key: AttemptKey) -> list[str]:
        """All objects of an attempt."""
        return [each.name for each in self._bucket.listed(folder_of(key))]

    def _of(self, key: AttemptKey) -> _Remembered:
        """What is known of an attempt; whoever asks has the lock."""
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
        return _Object(_alone(first), first.index, first.index, None)
    place = f"{first.index:06d}-{last.index:06d}-{first.offset_bytes}"
    name = f"{folder_of(_key(first))}/{place}-{_hash_of([each[0] for each in members])}"
    return _Object(name, first.index, last.index, first.offset_bytes)


def _named(name: str) -> _Object | None:
    """What the name of an object says; None: it is not one of ours."""
    file = name.rpartition("/")[2]
    if found := _TOGETHER.fullmatch(file):
        return _Object(name, int(found[1]), int(found[2]), int(found[3]))
    if found := _ALONE.fullmatch(file):
        return _Object(name, int(found[1]), int(found[1]), None)
    return None


def _may_hold(each: _Object, segment: Segment) -> bool:
    if each.offset_bytes is None:
        return each.name == _alone(segment)
    return each.first <= segment.index <= each.last and each.begin_of(segment) >= 0


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
