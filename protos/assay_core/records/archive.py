"""Campaigns that leave a server or come to it, whole or file by file: requests and answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from assay_protos import archive_pb2, records_pb2


@dataclass(frozen=True)
class DeleteRequest:
    """A request to delete a campaign that has ended; refused unless ``confirmed``."""

    campaign_id: str
    confirmed: bool = False

    def to_proto(self) -> archive_pb2.DeleteCampaignRequest:
        return archive_pb2.DeleteCampaignRequest(campaign_id=self.campaign_id, confirmed=self.confirmed)

    @classmethod
    def from_proto(cls, message: archive_pb2.DeleteCampaignRequest) -> DeleteRequest:
        return cls(message.campaign_id, message.confirmed)


@dataclass(frozen=True)
class DeletedCampaign:
    """What was deleted: runs, and published files with their bytes."""

    campaign_id: str
    runs: int
    files: int
    bytes: int

    def to_proto(self) -> archive_pb2.DeletedCampaign:
        return archive_pb2.DeletedCampaign(
            campaign_id=self.campaign_id, runs=self.runs, files=self.files, bytes=self.bytes
        )

    @classmethod
    def from_proto(cls, message: archive_pb2.DeletedCampaign) -> DeletedCampaign:
        return cls(message.campaign_id, message.runs, message.files, message.bytes)


@dataclass(frozen=True)
class ExportRequest:
    """A request for the archive of a campaign that has ended."""

    campaign_id: str

    def to_proto(self) -> archive_pb2.ExportCampaignRequest:
        return archive_pb2.ExportCampaignRequest(campaign_id=self.campaign_id)

    @classmethod
    def from_proto(cls, message: archive_pb2.ExportCampaignRequest) -> ExportRequest:
        return cls(message.campaign_id)


@dataclass(frozen=True)
class ArchiveChunk:
    """A piece of an archive."""

    data: bytes

    def to_proto(self) -> archive_pb2.ArchiveChunk:
        return archive_pb2.ArchiveChunk(data=self.data)

    @classmethod
    def from_proto(cls, message: archive_pb2.ArchiveChunk) -> ArchiveChunk:
        return cls(message.data)


@dataclass(frozen=True)
class ImportedCampaign:
    """What was taken in: runs, and published files with their bytes."""

    campaign_id: str
    runs: int
    files: int
    bytes: int

    def to_proto(self) -> archive_pb2.ImportedCampaign:
        return archive_pb2.ImportedCampaign(
            campaign_id=self.campaign_id, runs=self.runs, files=self.files, bytes=self.bytes
        )

    @classmethod
    def from_proto(cls, message: archive_pb2.ImportedCampaign) -> ImportedCampaign:
        return cls(message.campaign_id, message.runs, message.files, message.bytes)


@dataclass(frozen=True)
class RecordsAsked:
    """A request for a page of a campaign's published files, from its run number ``first`` on."""

    campaign_id: str
    first: int = 0

    def to_proto(self) -> records_pb2.ListRecordsRequest:
        return records_pb2.ListRecordsRequest(campaign_id=self.campaign_id, runs_from=self.first)

    @classmethod
    def from_proto(cls, message: records_pb2.ListRecordsRequest) -> RecordsAsked:
        return cls(message.campaign_id, message.runs_from)


@dataclass(frozen=True)
class RecordFile:
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

    def to_proto(self) -> records_pb2.RecordFile:
        return records_pb2.RecordFile(
            run_id=self.run_id,
            workload=self.workload,
            slice=self.slice,
            file=self.file,
            bytes=self.bytes,
            content_hash=self.content_hash,
            launches=self.launches,
        )

    @classmethod
    def from_proto(cls, message: records_pb2.RecordFile) -> RecordFile:
        return cls(
            message.run_id,
            message.workload,
            message.slice,
            message.file,
            message.bytes,
            message.content_hash,
            message.launches,
        )


@dataclass(frozen=True)
class RecordsPage:
    """Files of some runs of a campaign; ``next``: the run at which the next page begins, 0: none."""

    files: tuple[RecordFile, ...]
    next: int = 0

    def to_proto(self) -> records_pb2.ListRecordsResponse:
        files = [each.to_proto() for each in self.files]
        return records_pb2.ListRecordsResponse(files=files, runs_next=self.next)

    @classmethod
    def from_proto(cls, message: records_pb2.ListRecordsResponse) -> RecordsPage:
        return cls(tuple(RecordFile.from_proto(each) for each in message.files), message.runs_next)


@dataclass(frozen=True)
class RecordWanted:
    """A request for a published file from the byte ``offset`` on."""

    campaign_id: str
    run_id: str
    slice: int
    offset: int = 0

    def to_proto(self) -> records_pb2.ReadRecordsRequest:
        return records_pb2.ReadRecordsRequest(
            campaign_id=self.campaign_id, run_id=self.run_id, slice=self.slice, offset=self.offset
        )

    @classmethod
    def from_proto(cls, message: records_pb2.ReadRecordsRequest) -> RecordWanted:
        return cls(message.campaign_id, message.run_id, message.slice, message.offset)


@dataclass(frozen=True)
class RecordsChunk:
    """A piece of a published file."""

    data: bytes

    def to_proto(self) -> records_pb2.RecordsChunk:
        return records_pb2.RecordsChunk(data=self.data)

    @classmethod
    def from_proto(cls, message: records_pb2.RecordsChunk) -> RecordsChunk:
        return cls(message.data)


@dataclass(frozen=True)
class LaunchesCursor:
    """A place in the published launches of a run: launch number ``launch`` of the file of a slice.

    ``content_hash`` is of all that was published up to that slice; empty at the beginning.
    """

    slice: int = 0
    launch: int = 0
    content_hash: str = ""

    def to_proto(self) -> records_pb2.LaunchesCursor:
        return records_pb2.LaunchesCursor(
            slice=self.slice, launch=self.launch, content_hash=self.content_hash
        )

    @classmethod
    def from_proto(cls, message: records_pb2.LaunchesCursor) -> LaunchesCursor:
        return cls(message.slice, message.launch, message.content_hash)


@dataclass(frozen=True)
class LaunchesAsked:
    """A request for the launches of a run from a cursor on; ``columns`` of the launch table, empty: all."""

    campaign_id: str
    run_id: str
    columns: tuple[str, ...] = ()
    cursor: LaunchesCursor = field(default_factory=LaunchesCursor)

    def to_proto(self) -> records_pb2.StreamLaunchesRequest:
        return records_pb2.StreamLaunchesRequest(
            campaign_id=self.campaign_id,
            run_id=self.run_id,
            columns=self.columns,
            cursor=self.cursor.to_proto(),
        )

    @classmethod
    def from_proto(cls, message: records_pb2.StreamLaunchesRequest) -> LaunchesAsked:
        cursor = LaunchesCursor.from_proto(message.cursor)
        return cls(message.campaign_id, message.run_id, tuple(message.columns), cursor)


@dataclass(frozen=True)
class LaunchesPart:
    """A piece of a file's names, or launches as an Arrow IPC stream with the place after them."""

    names: bytes = b""
    batch: bytes = b""
    next: LaunchesCursor | None = None

    def to_proto(self) -> records_pb2.LaunchesPart:
        following = None if self.next is None else self.next.to_proto()
        return records_pb2.LaunchesPart(names=self.names, batch=self.batch, next=following)

    @classmethod
    def from_proto(cls, message: records_pb2.LaunchesPart) -> LaunchesPart:
        following = LaunchesCursor.from_proto(message.next) if message.HasField("next") else None
        return cls(message.names, message.batch, following)
