"""The interface of the record stores, one in a folder and one in a bucket; one test suite checks both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from assay_core.records.attempt import AttemptKey
from assay_sampling.errors import ParameterError
from assay_server.places import RecordsPlace
from assay_server.store.model import PublishedFile, Segment, SegmentParts
from assay_server.store.quarantine_files import MovedFiles
from assay_server.store.segments import SegmentContent

BUNDLES, PACKED = "bundles", ".tar.z"
REPORT_FORMS = ("json", "html", "parquet")
# A report that no campaign has yet; the name of its analysis and the file's own name follow.
STAGED_REPORT = "staged-"


def report_file(form: str) -> str:
    """The name of a report's file. Raises ParameterError for a form that there is not."""
    if form not in REPORT_FORMS:
        raise ParameterError("report", f"there is no format {form!r}", f"use {' or '.join(REPORT_FORMS)}")
    return f"report.{form}"


@dataclass(frozen=True)
class KnownFiles:
    """The files of a record store that the metadata know.

    Args:
        live: attempts whose staged segments may still be needed.
        publishing: those whose published file may already be in place though the metadata do not know it.
        published: files of published slices, relative to the records.
        campaigns: all campaigns, which may have reports.
        has_attempt: whether an attempt ever existed, by run, slice and number.
        bundles: files of bundles.
    """

    live: Collection[AttemptKey]
    publishing: Collection[AttemptKey]
    published: Collection[str]
    campaigns: Collection[str]
    has_attempt: Callable[[str, int, int], bool]
    bundles: Collection[str] = ()


CheckContent = Callable[[Segment, SegmentContent, str], None]
"""Checks the next segment of an attempt; the text names it. Raises LaunchTableError."""


class RecordStore(Protocol):
    """Launch records: staged segments on their way, published files, and reports.

    Every write is durable when the method returns. StorageError: the disk refused it, earlier writes are
    safe. DamagedSegmentError: a staged segment is missing or changed.

    ``place``: the bucket that has them; None: they are in a folder.
    """

    @property
    def place(self) -> RecordsPlace | None: ...

    def probe(self) -> None:
        """Try whether something can be written. Raises StorageError."""

    def stage(self, segments: Sequence[tuple[Segment, bytes, bytes]]) -> None:
        """Write segments durably at their offsets, each with its compressed names and launches."""

    def staged(self, segment: Segment) -> SegmentParts:
        """The compressed parts of a staged segment, checked against its hashes."""

    def publish(self, key: AttemptKey, segments: Sequence[Segment], check: CheckContent) -> PublishedFile:
        """Write all segments of an attempt, in order, as its slice's one file; atomic, repeatable.

        Raises LaunchTableError for content that cannot be unpacked or does not pass the check.
        """
        ...

    def withdraw(self, file: str) -> None:
        """Remove the file of a publication that the metadata do not want, if there is one."""

    def discard(self, key: AttemptKey) -> None:
        """Remove the staged segments of an attempt, if there are any."""

    def sweep(self, known: KnownFiles) -> MovedFiles | None:
        """Remove leftovers of our own crashes and of ended attempts.

        Other files that the metadata do not know are set aside, never removed; None if there are none. Call
        it only while nothing else writes.
        """

    def set_aside(self, file: str) -> MovedFiles | None:
        """Set aside a published file that changed since it was published; None if it is gone."""

    def make_way(self, key: AttemptKey) -> MovedFiles | None:
        """Set aside a file that lies where this attempt's would be, though the metadata do not know it."""

    def set_aside_staged(self, key: AttemptKey) -> MovedFiles | None:
        """Set aside the staged segments of an attempt, which changed on the disk; None if they are gone."""

    def all_set_aside(self) -> list[MovedFiles]:
        """The files that were set aside and are still there, oldest first."""
        ...

    def reading(self, file: str) -> AbstractContextManager[Path]:
        """Where a published file can be read on this machine, until the block ends.

        If it is gone, there is nothing at that path. Raises StorageError if it cannot be brought here.
        """
        ...

    def let_go(self, file: str) -> None:
        """Forget a copy of a published file on this machine, if there is one."""

    def location(self, file: str) -> str:
        """Where workers of an analysis find a published file: a path, or a URI that ``place`` explains."""
        ...

    def keep_bundle(self, file: str, source: Path) -> None:
        """Store the content of a file as a bundle's file of a new name; the source stays."""

    def reading_bundle(self, file: str) -> AbstractContextManager[Path]:
        """As :meth:`reading`, for a bundle's file."""
        ...

    def has_bundle(self, file: str) -> bool:
        """Whether a bundle's file is there. Raises StorageError."""
        ...

    def remove_bundle(self, file: str) -> None:
        """Remove a bundle's file, if it is there."""

    def listed(self) -> Iterator[str]:
        """The published files that are there, and what else lies among them; nothing half-written."""
        ...

    def sizes(self, files: Collection[str]) -> dict[str, int]:
        """The sizes in bytes of those of these published files that are there. Raises StorageError."""
        ...

    def delete_run(self, run_id: str) -> None:
        """Remove the files of a run that the metadata no longer know."""

    def delete_report(self, campaign_id: str) -> None:
        """Remove the reports of a campaign that the metadata no longer know."""

    def take_in(self, source: Path, file: str) -> None:
        """Move a file, durable and on the same disk, to the place of a published one that is not there."""

    def write_report(self, campaign_id: str, form: str, data: bytes) -> None:
        """Store a report; ``form`` is "json" or "html"."""

    def stage_report(self, campaign_id: str, name: str, forms: Mapping[str, bytes]) -> None:
        """Write a report, by form, where nobody sees it yet; another ``name`` is another report.

        It may be written again, with the same bytes.
        """

    def put_report(self, campaign_id: str, name: str, forms: Collection[str]) -> None:
        """Make a staged report the campaign's, and remove every other one that is staged.

        StorageError if it is gone, for instance because another report was put since: then nothing changes.
        """

    def report_path(self, campaign_id: str, form: str) -> Path:
        """Where a report can be read on this machine now; the path is empty before the report is made."""
        ...
