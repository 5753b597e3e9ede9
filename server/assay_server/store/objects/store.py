"""The record store in a bucket: an object a segment and one a published file, made only if absent.

    staging/<run_id>/slice-00000-attempt-0001/000003-9d5c...    a segment; the hash of its content
    records/<run_id>/slice-00000-1f-9d5c....parquet             the attempt's token, the content's hash
    reports/<campaign_id>/report.json, .html, .parquet           replaced whole
    bundles/<sha256>-9d5c.tar.z                                 files of submitters, under a name of their own
    set-aside/2026-11-22T04-05-06Z-.../records/...              objects that the database does not know
    state.json, probes/                                         whose records these are; checks

An object's name says its content, so a request that is sent twice, by one server or by two, changes nothing.
To remove the segments of an attempt they are always listed: the server before a restart, or a request that
failed, may have made objects that nobody recorded. What is published, the metadata alone decide. Files are
made and read in a folder of this machine (:mod:`assay_server.store.objects.cache`).
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
import shutil
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from assay_core.files.durable import storage_errors
from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import SetAsideReason
from assay_server.places import RecordsPlace
from assay_server.store.model import PublishedFile, Segment, SegmentParts
from assay_server.store.objects.bucket import PROBES, Bucket, MissingObjectError, probe_bucket
from assay_server.store.objects.cache import RecordCache
from assay_server.store.quarantine_files import MANIFEST, MovedFiles, read_manifest
from assay_server.store.record_store import BUNDLES, STAGED_REPORT, CheckContent, KnownFiles, report_file
from assay_server.store.records import DamagedSegmentError, LocalRecordStore, checked_parts

_STAGED = re.compile(r"slice-(\d+)-attempt-(\d+)")
_FEW = 16
_ASIDE = "set-aside"
_LISTED_EVERY_SECONDS = 30.0


class ObjectRecordStore:
    """A ``RecordStore`` in a bucket. Thread-safe; any number of servers may have one for the same place."""

    def __init__(self, bucket: Bucket, place: RecordsPlace) -> None:
        self._place = place
        self._bucket, self._url = bucket, place.url
        self._cache = RecordCache(bucket, place)
        self._aside = _ObjectsAside(bucket)
        self._making_folder = place.cache_folder / f"making-{secrets.token_hex(6)}"
        self._making = LocalRecordStore(self._making_folder, shared=True, staged=self.staged)

    def close(self) -> None:
        """Remove the folder in which files are made."""
        shutil.rmtree(self._making_folder, ignore_errors=True)

    @property
    def place(self) -> RecordsPlace:
        return self._place

    def probe(self) -> None:
        """As at the start, and so also that the bucket still keeps conditions. Raises StorageError."""
        probe_bucket(self._bucket)

    def stage(self, segments: Sequence[tuple[Segment, bytes, bytes]]) -> None:
        self._bucket.put_all_new([(_staged_name(segment), names + data) for segment, names, data in segments])

    def staged(self, segment: Segment) -> SegmentParts:
        name = _staged_name(segment)
        try:
            data = self._bucket.get(name)
        except MissingObjectError:
            remedy = "check the bucket; the attempt is run again"
            raise DamagedSegmentError(f"{self._url}/{name}", "it is gone", remedy) from None
        end = segment.names_bytes + segment.launches_bytes
        parts = SegmentParts(data[: segment.names_bytes], data[segment.names_bytes : end])
        return checked_parts(segment, parts, f"{self._url}/{name}")

    def publish(self, key: AttemptKey, segments: Sequence[Segment], check: CheckContent) -> PublishedFile:
        made = self._making.publish(key, segments, check)
        name, path = f"records/{made.file}", Path(self._making.location(made.file))
        try:
            with storage_errors(self._making_folder):
                self._bucket.put_file(name, path)
                self._cache.put(name, path)
        finally:
            self._making.withdraw(made.file)
        return made

    def withdraw(self, file: str) -> None:
        self._bucket.remove([f"records/{file}"])
        self.let_go(file)

    def discard(self, key: AttemptKey) -> None:
        self._bucket.remove(self._names(_staging_folder(key)))

    def sweep(self, known: KnownFiles) -> MovedFiles | None:
        probe_bucket(self._bucket)
        published = set(known.published)
        starts = {f"{key.run_id}/slice-{key.slice_index:05d}-{key.token:x}-" for key in known.publishing}
        live = {_staging_folder(key) for key in known.live}
        unknown: list[str] = []
        ended: list[str] = []
        for each in self._names("records"):
            file = each.removeprefix("records/")
            if file not in published and file.rpartition("-")[0] + "-" not in starts:
                unknown.append(each)
        for each in self._names("staging"):
            if each.rpartition("/")[0] not in live:
                (ended if _has_attempt(known, each) else unknown).append(each)
        for each in self._names("reports"):
            if each.split("/")[2].startswith(STAGED_REPORT):
                ended.append(each)
            elif each.split("/")[1] not in known.campaigns:
                unknown.append(each)
        bundle_names = {f"{BUNDLES}/{file}" for file in known.bundles}
        unknown += [each for each in self._names(BUNDLES) if each not in bundle_names]
        self._bucket.remove(ended)
        self._bucket.remove(self._names(PROBES))
        return self._aside.put(unknown, SetAsideReason.UNKNOWN)

    def _names(self, folder: str) -> list[str]:
        """The objects below a folder."""
        return [each.name for each in self._bucket.listed(folder)]

    def set_aside(self, file: str) -> MovedFiles | None:
        self.let_go(file)
        name = f"records/{file}"
        return self._aside.put([name] if self._bucket.look_at(name) else [], SetAsideReason.CHANGED)

    def make_way(self, key: AttemptKey) -> MovedFiles | None:
        """Nothing: the name of an attempt's file is its own."""
        return None

    def set_aside_staged(self, key: AttemptKey) -> MovedFiles | None:
        return self._aside.put(self._names(_staging_folder(key)), SetAsideReason.CHANGED)

    def all_set_aside(self) -> list[MovedFiles]:
        return self._aside.all()

    def reading(self, file: str) -> contextlib.AbstractContextManager[Path]:
        return self._cache.reading(f"records/{file}")

    def let_go(self, file: str) -> None:
        self._cache.forget(f"records/{file}")

    def location(self, file: str) -> str:
        return f"{self._url}/records/{file}"

    def listed(self) -> Iterator[str]:
        return (each.name.removeprefix("records/") for each in self._bucket.listed("records"))

    def sizes(self, files: Collection[str]) -> dict[str, int]:
        if len(files) <= _FEW:
            objects = {file: self._bucket.look_at(f"records/{file}") for file in files}
            return {file: each.size_bytes for file, each in objects.items() if each is not None}
        names = {f"records/{file}" for file in files}
        listed = (each for each in self._bucket.listed("records") if each.name in names)
        return {each.name.removeprefix("records/"): each.size_bytes for each in listed}

    def delete_run(self, run_id: str) -> None:
        for top in ("records", "staging"):
            self._bucket.remove(self._names(f"{top}/{run_id}"))
        self._cache.forget_all(f"records/{run_id}")

    def delete_report(self, campaign_id: str) -> None:
        self._bucket.remove(self._names(f"reports/{campaign_id}"))
        self._cache.forget_all(f"reports/{campaign_id}")

    def take_in(self, source: Path, file: str) -> None:
        with storage_errors(source):
            self._bucket.put_file(f"records/{file}", source)
            source.unlink()

    def keep_bundle(self, file: str, source: Path) -> None:
        with storage_errors(source):
            self._bucket.put_file(f"{BUNDLES}/{file}", source)

    def reading_bundle(self, file: str) -> contextlib.AbstractContextManager[Path]:
        return self._cache.reading(f"{BUNDLES}/{file}")

    def has_bundle(self, file: str) -> bool:
        return self._bucket.look_at(f"{BUNDLES}/{file}") is not None

    def remove_bundle(self, file: str) -> None:
        self._bucket.remove([f"{BUNDLES}/{file}"])
        self._cache.forget(f"{BUNDLES}/{file}")

    def write_report(self, campaign_id: str, form: str, data: bytes) -> None:
        self._bucket.replace(_report(campaign_id, form), data)

    def stage_report(self, campaign_id: str, name: str, forms: Mapping[str, bytes]) -> None:
        for form, data in forms.items():
            self._bucket.replace(_report(campaign_id, form, name), data)

    def put_report(self, campaign_id: str, name: str, forms: Collection[str]) -> None:
        staged = {form: _report(campaign_id, form, name) for form in forms}
        folder = f"reports/{campaign_id}"
        listed = {each.name: each.size_bytes for each in self._bucket.listed(folder)}
        # First the others: whoever stood still with one of them must not put it in the place of this one.
        others = [each for each in listed if each.startswith(f"{folder}/{STAGED_REPORT}")]
        self._bucket.remove([each for each in others if each not in staged.values()])
        for form, each in staged.items():
            self._bucket.copy(each, _report(campaign_id, form), listed.get(each, 0))
        self._bucket.remove(list(staged.values()))

    def report_path(self, campaign_id: str, form: str) -> Path:
        return self._cache.report(_report(campaign_id, form))


class _ObjectsAside:
    """``set-aside/`` of a bucket. Thread-safe.

    Objects are copied there, then removed from their place. As in a folder
    (:mod:`assay_server.store.quarantine_files`): a manifest names them before they are moved, and nothing
    here removes them.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._lock = threading.Lock()
        self._listed: list[MovedFiles] = []
        self._due = 0.0

    def put(self, names: Sequence[str], reason: SetAsideReason) -> MovedFiles | None:
        """Move objects; None if there are none. Raises StorageError."""
        sizes = {
            name: bucket_object.size_bytes
            for name in sorted(names)
            if (bucket_object := self._bucket.look_at(name))
        }
        if not sizes:
            return None
        now = datetime.now(UTC)
        folder = f"{_ASIDE}/{now:%Y-%m-%dT%H-%M-%SZ}-{reason}-{secrets.token_hex(3)}"
        moved = MovedFiles(folder, reason, int(now.timestamp() * 1000), sum(sizes.values()), tuple(sizes))
        self._bucket.put_new(f"{folder}/{MANIFEST}", moved.manifest)
        for name, size_bytes in sizes.items():
            self._bucket.copy(name, f"{folder}/{name}", size_bytes)
        self._bucket.remove(list(sizes))
        with self._lock:
            self._due = 0.0
        return moved

    def all(self) -> list[MovedFiles]:
        """What is there, oldest first, as listed within the last half minute. Raises StorageError."""
        with self._lock:
            if time.monotonic() >= self._due:
                self._listed = self._look()
                self._due = time.monotonic() + _LISTED_EVERY_SECONDS
            return list(self._listed)

    def _look(self) -> list[MovedFiles]:
        there: dict[str, dict[str, int]] = {}
        for each in self._bucket.listed(_ASIDE):
            _, folder, name = each.name.split("/", 2)
            there.setdefault(folder, {})[name] = each.size_bytes
        moved_files = []
        for name in sorted(name for name, files in there.items() if len(files) > 1):
            files = {file: size for file, size in there[name].items() if file != MANIFEST}
            folder = f"{_ASIDE}/{name}"
            moved = read_manifest(folder, self._bucket.get(f"{folder}/{MANIFEST}"))
            moved_files.append(replace(moved, file_bytes=sum(files.values()), names=tuple(sorted(files))))
        return sorted(moved_files, key=lambda each: each.set_aside_at_ms)


def _staging_folder(key: AttemptKey) -> str:
    return f"staging/{key.run_id}/slice-{key.slice_index:05d}-attempt-{key.attempt:04d}"


def _staged_name(segment: Segment) -> str:
    content = hashlib.blake2b(segment.names_hash + segment.launches_hash, digest_size=16).hexdigest()
    return f"{_staging_folder(segment.key)}/{segment.index:06d}-{content}"


def _has_attempt(known: KnownFiles, name: str) -> bool:
    _, run_id, folder, *_ = [*name.split("/"), ""]
    named = _STAGED.fullmatch(folder)
    return bool(named and known.has_attempt(run_id, int(named[1]), int(named[2])))


def _report(campaign_id: str, form: str, staged: str = "") -> str:
    """The name of a report; ``staged``: of the one that an analysis of this name has staged."""
    start = f"{STAGED_REPORT}{staged}-" if staged else ""
    return f"reports/{campaign_id}/{start}{report_file(form)}"
