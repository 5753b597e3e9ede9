from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class DeleteCampaignRequest(_message.Message):
    __slots__ = ("campaign_id", "confirmed")
    CAMPAIGN_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    campaign_id: str
    confirmed: bool
    def __init__(self, campaign_id: _Optional[str] = ..., confirmed: _Optional[bool] = ...) -> None: ...

class DeletedCampaign(_message.Message):
    __slots__ = ("campaign_id", "runs", "files", "bytes")
    CAMPAIGN_ID_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    campaign_id: str
    runs: int
    files: int
    bytes: int
    def __init__(self, campaign_id: _Optional[str] = ..., runs: _Optional[int] = ..., files: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class ExportCampaignRequest(_message.Message):
    __slots__ = ("campaign_id",)
    CAMPAIGN_ID_FIELD_NUMBER: _ClassVar[int]
    campaign_id: str
    def __init__(self, campaign_id: _Optional[str] = ...) -> None: ...

class ArchiveChunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class ImportedCampaign(_message.Message):
    __slots__ = ("campaign_id", "runs", "files", "bytes")
    CAMPAIGN_ID_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    campaign_id: str
    runs: int
    files: int
    bytes: int
    def __init__(self, campaign_id: _Optional[str] = ..., runs: _Optional[int] = ..., files: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...
