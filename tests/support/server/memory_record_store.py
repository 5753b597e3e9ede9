"""A record store that keeps everything in dictionaries: the second one that the contract suite runs over.

Readers of launches take paths. So a published file is written out into a folder when somebody asks for its
path, as one would be that is fetched from afar.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from assay_core.files.durable import storage_errors
from assay_core.files.launch_file import new_launch_file
from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import SetAsideReason
from assay_sampling.errors import LaunchTableError, ParameterError, StorageError
from assay_server.content_hash import fresh_hash_of
from assay_server.store.model import HeldSegment, Segment
from assay_server.store.record_store import NOTHING_HELD, Held, KnownFiles, PublishedFile
from assay_server.store.records import REPORT_FORMS, DamagedSegmentError
from assay_server.store.segments import SegmentContent, decode_segment, part_hash
from assay_server.store.set_aside import MovedFiles


class MemoryRecordStore:
    """A ``RecordStore``; ``files`` are its bytes by name, and ``fetched`` the folder for those asked for."""

    def __init__(self, fetched: Path, files: dict[str, bytes] | None = None) -> None:
        self.files = {} if files is None else files
        self._fetched = fetched
        self._set_aside: list[MovedFiles] = []

    @property
    def place(self) -> None:
        """Not a bucket."""

    def probe(self) -> None:
        """Dictionaries can always be written."""

    def stage(self, segments: Sequence[tuple[Segment, bytes, bytes]]) -> None:
        for segment, names, launches in segments:
            name = _staged(segment.run_id, segment.slice, segment.attempt)
            before = self.files.get(name, b"")[: segment.offset_bytes].ljust(segment.offset_bytes, b"\0")
            self.files[name] = before + names + launches

    def write_ahead(self, segment: Segment, content: SegmentContent) -> None:
        """Nothing: publishing is quick here."""

    def forget_ahead(self, key: AttemptKey) -> None:
        """Nothing was written ahead."""

    def staged(self, segment: Segment, held: Held = NOTHING_HELD) -> HeldSegment:
        name = _staged(segment.run_id, segment.slice, segment.attempt)
        if segment.index in held:
            names, launches = held[segment.index].names, held[segment.index].launches
        elif name not in self.files:
            raise DamagedSegmentError(name, "it is gone", "run the attempt again")
        else:
            data = self.files[name][segment.offset_bytes : segment.end_bytes]
            names, launches = data[: segment.names_bytes], data[segment.names_bytes :]
        hashes = (part_hash(names) if names else segment.names_hash, part_hash(launches))
        if hashes != (segment.names_hash, segment.launches_hash):
            cause = f"segment {segment.index} in it has changed"
            raise DamagedSegmentError(name, cause, "run the attempt again")
        return HeldSegment(names, launches)

    def publish(
        self, key: AttemptKey, segments: Sequence[Segment], held: Held = NOTHING_HELD
    ) -> PublishedFile:
        if not segments:
            raise LaunchTableError(str(key), "there is nothing to publish")
        parts = [self.staged(segment, held) for segment in segments]
        contents = [decode_segment(each.names, each.launches, str(key)) for each in parts]
        name = _published(key.run_id, key.slice_index)
        path = self._fetched / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_launch_file(path, contents[0].schema, private=True) as writer:
            for content in contents:
                for batch in content.launch_batches():
                    writer.write(batch)
        self.files[name] = path.read_bytes()
        launches = sum(segment.launches for segment in segments)
        file = name.removeprefix("records/")
        return PublishedFile(file, len(self.files[name]), launches, fresh_hash_of(path))

    def publish_small(
        self, attempts: Sequence[tuple[AttemptKey, Sequence[Segment], Held]]
    ) -> dict[AttemptKey, PublishedFile]:
        return {key: self.publish(key, segments, held) for key, segments, held in attempts if segments}

    def withdraw(self, file: str) -> None:
        self.files.pop(f"records/{file}", None)

    def discard(self, key: AttemptKey) -> None:
        self.files.pop(_staged(key.run_id, key.slice_index, key.attempt), None)

    def sweep(self, known: KnownFiles, least_age_seconds: float = 0.0) -> MovedFiles | None:
        if least_age_seconds:  # everything here is young
            return None
        keep = {f"records/{file}" for file in known.published}
        keep |= {_published(key.run_id, key.slice_index) for key in known.publishing}
        keep |= {_staged(key.run_id, key.slice_index, key.attempt) for key in known.live}
        keep |= {f"bundles/{file}" for file in known.bundles}
        unknown = [name for name in self.files if name.startswith("bundles/") and name not in keep]
        keep |= set(unknown)
        for name in [name for name in self.files if name not in keep and not name.startswith("set-aside/")]:
            top, owner, file = name.split("/")
            numbers = file.replace("slice-", "").split("-attempt-")
            if top == "staging" and known.has_attempt(owner, int(numbers[0]), int(numbers[1])):
                del self.files[name]
            elif top != "reports" or owner not in known.campaigns:
                unknown.append(name)
        return self._move(unknown, SetAsideReason.UNKNOWN)

    def set_aside_staged(self, key: AttemptKey) -> MovedFiles | None:
        name = _staged(key.run_id, key.slice_index, key.attempt)
        return self._move([name] if name in self.files else [], SetAsideReason.CHANGED)

    def make_way(self, key: AttemptKey) -> MovedFiles | None:
        return self.set_aside(_published(key.run_id, key.slice_index).removeprefix("records/"))

    def set_aside(self, file: str) -> MovedFiles | None:
        name = f"records/{file}"
        return self._move([name] if name in self.files else [], SetAsideReason.CHANGED)

    def _move(self, names: list[str], reason: SetAsideReason) -> MovedFiles | None:
        if not names:
            return None
        folder = f"set-aside/{len(self._set_aside)}-{reason}"
        size = sum(len(self.files[name]) for name in names)
        moved = MovedFiles(folder, reason, time.time_ns() // 1_000_000, size, tuple(sorted(names)))
        for name in names:
            self.files[f"{folder}/{name}"] = self.files.pop(name)
        self._set_aside.append(moved)
        return moved

    def all_set_aside(self) -> list[MovedFiles]:
        return list(self._set_aside)

    @contextlib.contextmanager
    def reading(self, file: str) -> Iterator[Path]:
        yield self._fetch(f"records/{file}")

    def let_go(self, file: str) -> None:
        """Nothing is kept for long."""

    def location(self, file: str) -> str:
        return str(self._fetch(f"records/{file}"))

    def listed(self) -> Iterator[str]:
        return (name.removeprefix("records/") for name in self.files if name.startswith("records/"))

    def sizes(self, files: Collection[str]) -> dict[str, int]:
        return {file: len(self.files[name]) for file in files if (name := f"records/{file}") in self.files}

    def delete_run(self, run_id: str) -> None:
        for name in [n for n in self.files if n.startswith((f"records/{run_id}/", f"staging/{run_id}/"))]:
            del self.files[name]

    def delete_report(self, campaign_id: str) -> None:
        for name in [n for n in self.files if n.startswith(f"reports/{campaign_id}/")]:
            del self.files[name]

    def take_in(self, source: Path, file: str) -> None:
        if f"records/{file}" in self.files:
            raise StorageError(file, "it is there already")
        self.files[f"records/{file}"] = source.read_bytes()
        source.unlink()

    def keep_bundle(self, file: str, source: Path) -> None:
        if f"bundles/{file}" in self.files:
            raise StorageError(file, "it is there already")
        with storage_errors(source):
            self.files[f"bundles/{file}"] = source.read_bytes()

    @contextlib.contextmanager
    def reading_bundle(self, file: str) -> Iterator[Path]:
        yield self._fetch(f"bundles/{file}")

    def has_bundle(self, file: str) -> bool:
        return f"bundles/{file}" in self.files

    def remove_bundle(self, file: str) -> None:
        self.files.pop(f"bundles/{file}", None)

    def write_report(self, campaign_id: str, form: str, data: bytes) -> None:
        self.files[_report(campaign_id, form)] = data

    def stage_report(self, campaign_id: str, name: str, forms: Mapping[str, bytes]) -> None:
        for form, data in forms.items():
            self.files[f"{_report(campaign_id, form)}.staged-{name}"] = data

    def put_report(self, campaign_id: str, name: str, forms: Collection[str]) -> None:
        own = {f"{_report(campaign_id, form)}.staged-{name}": _report(campaign_id, form) for form in forms}
        if missing := own.keys() - self.files.keys():
            raise StorageError(min(missing), "it is gone")
        for staged, place in own.items():
            self.files[place] = self.files.pop(staged)
        for other in [n for n in self.files if n.startswith(f"reports/{campaign_id}/") and ".staged-" in n]:
            del self.files[other]

    def report_path(self, campaign_id: str, form: str) -> Path:
        return self._fetch(_report(campaign_id, form))

    def _fetch(self, name: str) -> Path:
        path = self._fetched / name
        if name in self.files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.files[name])
        else:
            path.unlink(missing_ok=True)
        return path


def _staged(run_id: str, slice_index: int, attempt: int) -> str:
    return f"staging/{run_id}/slice-{slice_index:05d}-attempt-{attempt:04d}"


def _published(run_id: str, slice_index: int) -> str:
    return f"records/{run_id}/slice-{slice_index:05d}.parquet"


def _report(campaign_id: str, form: str) -> str:
    if form not in REPORT_FORMS:
        raise ParameterError("report", f"there is no format {form!r}", f"use {' or '.join(REPORT_FORMS)}")
    return f"reports/{campaign_id}/report.{form}"
