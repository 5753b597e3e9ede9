"""Campaigns that leave a server or come to it, whole or file by file: requests and answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from assay_core.records.wire import Record
from assay_protos import archive_pb2, records_pb2


@dataclass(frozen=True)
class DeleteRequest(Record[archive_pb2.DeleteCampaignRequest]):
    """A request to delete a campaign that has ended; refused unless ``confirmed``."""

    campaign_id: str
    confirmed: bool = False


@dataclass(frozen=True)
class DeletedCampaign(Record[archive_pb2.DeletedCampaign]):
    """What was deleted: runs, and published files with their bytes."""

    campaign_id: str
    runs: int
    files: int
    bytes: int


@dataclass(frozen=True)
class ExportRequest(Record[archive_pb2.ExportCampaignRequest]):
    """A request for the archive of a campaign that has ended."""

    campaign_id: str


@dataclass(frozen=True)
class ArchiveChunk(Record[archive_pb2.ArchiveChunk]):
    """A piece of an archive."""

    data: bytes


@dataclass(frozen=True)
class ImportedCampaign(Record[archive_pb2.ImportedCampaign]):
    """What was taken in: runs, and published files with their bytes."""

    campaign_id: str
    runs: int
    files: int
    bytes: int


@dataclass(frozen=True)
class RecordsAsked(Record[records_pb2.ListRecordsRequest], first="runs_from"):
    """A request for a page of a campaign's published files, from its run number ``first`` on."""

    campaign_id: str
    first: int = 0


@dataclass(frozen=True)
class RecordFile(Record[records_pb2.RecordFile]):
    """A published file: the launches of one slice; ``file`` is relative to the folder of records.

    ``content_hash``: BLAKE2b-256 in hexadecimal.
    """

    run_id: str
    workload: str
    slice: int
    file: str
    bytes: int
    content_hash: str
    launches: int


@dataclass(frozen=True)
class RecordsPage(Record[records_pb2.ListRecordsResponse], next="runs_next"):
    """Files of some runs of a campaign; ``next``: the run at which the next page begins, 0: none."""

    files: tuple[RecordFile, ...]
    next: int = 0


@dataclass(frozen=True)
class RecordWanted(Record[records_pb2.ReadRecordsRequest]):
    """A request for a published file from the byte ``offset`` on."""

    campaign_id: str
    run_id: str
    slice: int
    offset: int = 0


@dataclass(frozen=True)
class RecordsChunk(Record[records_pb2.RecordsChunk]):
    """A piece of a published file."""

    data: bytes


@dataclass(frozen=True)
class LaunchesCursor(Record[records_pb2.LaunchesCursor]):
    """A place in the published launches of a run: launch number ``launch`` of the file of a slice.

    ``content_hash`` is of all that was published up to that slice; empty at the beginning.
    """

    slice: int = 0
    launch: int = 0
    content_hash: str = ""


@dataclass(frozen=True)
class LaunchesAsked(Record[records_pb2.StreamLaunchesRequest]):
    """A request for the launches of a run from a cursor on; ``columns`` of the launch table, empty: all."""

    campaign_id: str
    run_id: str
    columns: tuple[str, ...] = ()
    cursor: LaunchesCursor = field(default_factory=LaunchesCursor)


@dataclass(frozen=True)
class LaunchesPart(Record[records_pb2.LaunchesPart]):
    """A piece of a file's names, or launches as an Arrow IPC stream with the place after them."""

    names: bytes = b""
    batch: bytes = b""
    next: LaunchesCursor | None = None
