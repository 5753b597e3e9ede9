"""The record store on a local disk.

    <state>/staging/<run_id>/slice-00000-attempt-0001    segments one after another: names, launches
    <state>/records/<run_id>/slice-00000.parquet         one file per slice
    <state>/records/<run_id>/slice-00000-1f-9d5c....parquet    in a folder that a standby reaches, too: the
                                                         attempt's token and the hash of the content
    <state>/reports/<campaign_id>/report.json, report.html
    <state>/bundles/<sha256>-9d5c.tar.z                  files of submitters, under a name of their own
    <state>/set-aside/...                                files that the database does not know: see set_aside

Staged bytes only count once the metadata store names them: the next segment overwrites what a crash left
after the last named one. So any number of segments of an attempt take one sync. Publishing is a pure function
of the staged segments and ends in one rename, so it can be repeated. In a shared folder a rename never
replaces the file of another attempt: which one is published, the metadata store alone decides.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import secrets
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from threading import BoundedSemaphore

from assay_core.files.durable import (
    TEMPORARY,
    make_folder,
    remove_empty_parents,
    replacing,
    storage_errors,
    sync_directory,
    temporary_of,
    write_atomically,
    write_pieces,
)
from assay_core.files.launch_file import HashedContent, new_launch_file
from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import SetAsideReason
from assay_sampling.errors import StorageError
from assay_server.store.model import PublishedFile, Segment, SegmentParts
from assay_server.store.quarantine_files import MovedFiles, SetAsideFolder
from assay_server.store.record_store import (
    BUNDLES,
    PACKED,
    REPORT_FORMS,
    STAGED_REPORT,
    CheckContent,
    KnownFiles,
    report_file,
)
from assay_server.store.segments import SegmentContent, decode_segment, part_hash

# Our own publications and reports that a crash cut short: nothing refers to them.
_HALF_WRITTEN = re.compile(
    rf"(slice-\d+(-\w+)*\.parquet|report\.({'|'.join(REPORT_FORMS)})){re.escape(TEMPORARY)}\d+(-\w+)*"
)
_HASH_DIGITS = 16  # of a content hash in a name
_STAGED = re.compile(r"slice-(\d+)-attempt-(\d+)")
_UNPACKED_AHEAD = 2
_STAGED_TOGETHER = 8


ReadSegment = Callable[[Segment], SegmentParts]


class DamagedSegmentError(StorageError):
    """A staged segment is missing or changed: the disk lost it. Its attempt must be run again."""


class LocalRecordStore:
    """A ``RecordStore`` in a folder; ``make_folders`` False: it is only looked at.

    ``shared``: a standby may take over in the same folder while this server still writes. ``staged``: reads
    segments that are staged elsewhere.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        make_folders: bool = True,
        shared: bool = False,
        staged: ReadSegment | None = None,
    ) -> None:
        self._shared = shared
        self._read_segment = staged or self.staged
        self._staging = state_dir / "staging"
        self._records = state_dir / "records"
        self._reports = state_dir / "reports"
        self._bundles = state_dir / BUNDLES
        self._set_aside = SetAsideFolder(state_dir)
        # More at once would take memory and no less time.
        self._writing = BoundedSemaphore(max(2, len(os.sched_getaffinity(0))))
        self._stagers = ThreadPoolExecutor(_STAGED_TOGETHER, "assay-stage")
        with storage_errors(state_dir):
            for folder in (self._staging, self._records, self._reports) if make_folders else ():
                make_folder(folder)

    @property
    def place(self) -> None:
        """Not a bucket."""

    def probe(self) -> None:
        with storage_errors(self._staging), tempfile.TemporaryFile(dir=self._staging) as file:
            file.write(bytes(1))
            file.flush()

    def stage(self, segments: Sequence[tuple[Segment, bytes, bytes]]) -> None:
        by_file: dict[Path, list[tuple[int, bytes]]] = {}
        for segment, names, launches in segments:
            pieces = by_file.setdefault(self._staging_path(segment.key), [])
            pieces.append((segment.offset_bytes, names))
            pieces.append((segment.offset_bytes + len(names), launches))
        # Waiting for the disk takes nearly all of the time, and it serves several files at once.
        files = list(by_file.items())
        others = [self._stagers.submit(_stage_file, file) for file in files[1:]]
        try:
            for file in files[:1]:
                _stage_file(file)
        finally:
            wait(others)
        for future in others:
            future.result()

    def staged(self, segment: Segment) -> SegmentParts:
        path = self._staging_path(segment.key)
        try:
            with path.open("rb") as file:
                file.seek(segment.offset_bytes)
                names, launches = file.read(segment.names_bytes), file.read(segment.launches_bytes)
        except FileNotFoundError:
            raise _damaged(path, "it is gone") from None
        except OSError as error:
            raise StorageError(
                str(path), f"it cannot be read ({error.strerror})", "check the disk"
            ) from error
        return checked_parts(segment, SegmentParts(names, launches), path)

    def publish(self, key: AttemptKey, segments: Sequence[Segment], check: CheckContent) -> PublishedFile:
        if not segments:
            raise _damaged(str(key), "its segments are gone, so there is nothing to publish")
        path = self._published_path(key.run_id, key.slice_index)
        with storage_errors(path):
            make_folder(path.parent)
            named = self._naming(key)
            with self._writing:
                content_hash = self._write_staged(path, self._contents(key, segments, check), named)
            path = named(content_hash)
            return PublishedFile(
                str(path.relative_to(self._records)),
                path.stat().st_size,
                sum(segment.launches for segment in segments),
                content_hash,
            )

    def _write_staged(
        self, path: Path, contents: Iterator[SegmentContent], named: Callable[[str], Path]
    ) -> str:
        """Write an attempt's file; returns the hash of its content."""
        hashed, first = HashedContent(), next(contents)
        with new_launch_file(
            path,
            first.schema,
            private=True,
            temporary=path.with_name(f"{temporary_of(path).name}-{secrets.token_hex(4)}"),
            hashed=hashed,
            named=lambda: named(hashed.hexdigest()),
        ) as writer:
            for content in itertools.chain((first,), contents):
                for batch in content.launch_batches():
                    writer.write(batch, named=True)
        return hashed.hexdigest()

    def withdraw(self, file: str) -> None:
        _remove(self._records / file, self._records)

    def discard(self, key: AttemptKey) -> None:
        _remove(self._staging_path(key), self._staging)

    def sweep(self, known: KnownFiles) -> MovedFiles | None:
        with storage_errors(self._records):
            for top in (self._records, self._reports):
                for file in list(top.glob(f"*/*{TEMPORARY}*")):
                    if _HALF_WRITTEN.fullmatch(file.name):
                        file.unlink(missing_ok=True)
            for left in list(self._reports.glob(f"*/{STAGED_REPORT}*")):
                left.unlink(missing_ok=True)
            unknown = [*self._unknown_records(known), *self._unknown_staged(known)]
            unknown += [path for path in self._bundles.glob(f"*{PACKED}*") if path.name not in known.bundles]
            unknown += [p for p in self._reports.iterdir() if p.name not in known.campaigns]
            moved = self._set_aside.put(unknown, SetAsideReason.UNKNOWN)
            for top in (self._staging, self._records, self._reports):
                for folder in [p for p in top.iterdir() if p.is_dir()]:
                    remove_empty_parents(folder, top)
        return moved

    def _unknown_records(self, known: KnownFiles) -> Iterator[Path]:
        keep = {self._records / file for file in known.published}
        keep |= {self._published_path(key.run_id, key.slice_index) for key in known.publishing}
        of_tokens = {(key.run_id, f"{key.slice_index:05d}-{key.token:x}") for key in known.publishing}
        for run in self._records.iterdir():
            for path in _within(run):
                token = path.name.removeprefix("slice-").rpartition("-")[0]
                if path not in keep and (run.name, token) not in of_tokens:
                    yield path

    def _unknown_staged(self, known: KnownFiles) -> Iterator[Path]:
        """The staged files of unknown attempts; removes those of ended attempts."""
        keep = {self._staging_path(key) for key in known.live}
        for run in self._staging.iterdir():
            for path in _within(run):
                named = _STAGED.fullmatch(path.name)
                if path in keep:
                    continue
                if named and known.has_attempt(run.name, int(named[1]), int(named[2])):
                    path.unlink(missing_ok=True)
                else:
                    yield path

    def set_aside(self, file: str) -> MovedFiles | None:
        return self._set_changed_aside(self._records / file, self._records)

    def make_way(self, key: AttemptKey) -> MovedFiles | None:
        if self._shared:  # the name of an attempt's file is its own
            return None
        return self._set_changed_aside(self._published_path(key.run_id, key.slice_index), self._records)

    def _set_changed_aside(self, path: Path, top: Path) -> MovedFiles | None:
        with storage_errors(path):
            paths = [path] if path.is_symlink() or path.exists() else []
            moved = self._set_aside.put(paths, SetAsideReason.CHANGED)
            remove_empty_parents(path.parent, top)
        return moved

    def set_aside_staged(self, key: AttemptKey) -> MovedFiles | None:
        return self._set_changed_aside(self._staging_path(key), self._staging)

    def all_set_aside(self) -> list[MovedFiles]:
        return self._set_aside.all()

    @contextlib.contextmanager
    def reading(self, file: str) -> Iterator[Path]:
        yield self._records / file

    def let_go(self, file: str) -> None:
        """Nothing: the files are here."""

    def location(self, file: str) -> str:
        return str(self._records / file)

    def listed(self) -> Iterator[str]:
        with storage_errors(self._records):
            for entry in _files_below(self._records) if self._records.is_dir() else ():
                # Half-written files of our own are removed at the next start, or renamed.
                if TEMPORARY not in entry.name:
                    yield os.path.relpath(entry.path, self._records)

    def sizes(self, files: Collection[str]) -> dict[str, int]:
        bytes_by_file = {}
        for file in files:
            with contextlib.suppress(OSError):
                bytes_by_file[file] = (self._records / file).stat().st_size
        return bytes_by_file

    def delete_run(self, run_id: str) -> None:
        for top in (self._records, self._staging):
            with storage_errors(top):
                shutil.rmtree(top / run_id, ignore_errors=True)

    def take_in(self, source: Path, file: str) -> None:
        path = self._records / file
        with storage_errors(path):
            make_folder(path.parent)
            os.link(source, path)  # never replaces a file
            source.unlink()
            sync_directory(path.parent)

    def keep_bundle(self, file: str, source: Path) -> None:
        path = self._bundles / file
        with storage_errors(path):
            make_folder(path.parent)
            try:
                os.link(source, path)
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP):
                    raise
                with source.open("rb") as content, replacing(path) as copy:  # of another disk
                    shutil.copyfileobj(content, copy)
            sync_directory(path.parent)

    @contextlib.contextmanager
    def reading_bundle(self, file: str) -> Iterator[Path]:
        yield self._bundles / file

    def has_bundle(self, file: str) -> bool:
        with storage_errors(self._bundles):
            return (self._bundles / file).exists()

    def remove_bundle(self, file: str) -> None:
        with storage_errors(self._bundles):
            (self._bundles / file).unlink(missing_ok=True)

    def write_report(self, campaign_id: str, form: str, data: bytes) -> None:
        path = self.report_path(campaign_id, form)
        with storage_errors(path):
            make_folder(path.parent)
            write_atomically(path, data)

    def stage_report(self, campaign_id: str, name: str, forms: Mapping[str, bytes]) -> None:
        for form, data in forms.items():
            path = self._staged_report(campaign_id, form, name)
            with storage_errors(path):
                make_folder(path.parent)
                write_atomically(path, data)

    def put_report(self, campaign_id: str, name: str, forms: Collection[str]) -> None:
        staged = {form: self._staged_report(campaign_id, form, name) for form in forms}
        folder = self._reports / campaign_id
        with storage_errors(folder):
            # First the others: whoever stood still with one of them must not put it in the place of this one.
            for other in folder.glob(f"{STAGED_REPORT}*"):
                if other not in staged.values():
                    other.unlink(missing_ok=True)
            for form, path in staged.items():
                path.replace(self.report_path(campaign_id, form))
            sync_directory(folder)

    def _staged_report(self, campaign_id: str, form: str, name: str) -> Path:
        path = self.report_path(campaign_id, form)
        return path.with_name(f"{STAGED_REPORT}{name}-{path.name}")

    def report_path(self, campaign_id: str, form: str) -> Path:
        return self._reports / campaign_id / report_file(form)

    def delete_report(self, campaign_id: str) -> None:
        with storage_errors(self._reports):
            shutil.rmtree(self._reports / campaign_id, ignore_errors=True)

    def _contents(
        self, key: AttemptKey, segments: Sequence[Segment], check: CheckContent
    ) -> Iterator[SegmentContent]:
        """The segments in order; another thread unpacks and checks the next ones while one is written."""

        def checked(segment: Segment) -> SegmentContent:
            parts, subject = self._read_segment(segment), f"{key}, segment {segment.index}"
            content = decode_segment(parts.names, parts.launches, subject)
            check(segment, content, subject)
            return content

        with ThreadPoolExecutor(1, "assay-unpack") as thread:
            ahead: deque[Future[SegmentContent]] = deque()
            for segment in segments:
                ahead.append(thread.submit(checked, segment))
                if len(ahead) > _UNPACKED_AHEAD:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()

    def _staging_path(self, key: AttemptKey) -> Path:
        return self._staging / key.run_id / f"slice-{key.slice_index:05d}-attempt-{key.attempt:04d}"

    def _published_path(self, run_id: str, slice_index: int) -> Path:
        return self._records / run_id / f"slice-{slice_index:05d}.parquet"

    def _naming(self, key: AttemptKey) -> Callable[[str], Path]:
        """Where the file of an attempt lies, by the hash of its content."""
        path = self._published_path(key.run_id, key.slice_index)
        if not self._shared:
            return lambda content_hash: path
        own = f"{path.stem}-{key.token:x}"
        return lambda content_hash: path.with_name(f"{own}-{content_hash[:_HASH_DIGITS]}{path.suffix}")


def _remove(path: Path, top: Path) -> None:
    with storage_errors(path):
        path.unlink(missing_ok=True)
        remove_empty_parents(path.parent, top)


def _stage_file(staged: tuple[Path, list[tuple[int, bytes]]]) -> None:
    path, pieces = staged
    with storage_errors(path):
        make_folder(path.parent)
        write_pieces(path, pieces)


def _files_below(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """Every file in a folder and those in it; entries of a folder say themselves what is a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files_below(entry.path)
            elif not entry.is_dir():
                yield entry


def _within(path: Path) -> list[Path]:
    """The content of a run's folder; if it is not a folder, the path itself."""
    return list(path.iterdir()) if path.is_dir() and not path.is_symlink() else [path]


def checked_parts(segment: Segment, parts: SegmentParts, path: Path | str) -> SegmentParts:
    """The parts of a segment from this file or object, if they are as they were acknowledged.

    Raises DamagedSegmentError.
    """
    launches_changed = part_hash(parts.launches) != segment.launches_hash
    if launches_changed or (segment.names_bytes and part_hash(parts.names) != segment.names_hash):
        raise _damaged(path, f"segment {segment.index} in it has changed since it was acknowledged")
    return parts


def _damaged(path: Path | str, cause: str) -> DamagedSegmentError:
    return DamagedSegmentError(str(path), cause, "check the disk; the attempt is run again")
