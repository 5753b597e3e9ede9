"""Campaigns that leave a server or come to it: requests and answers."""

from __future__ import annotations

from dataclasses import dataclass

from assay_protos import archive_pb2


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
