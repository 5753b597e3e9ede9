from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListRecordsRequest(_message.Message):
    __slots__ = ("campaign_id", "runs_from")
    CAMPAIGN_ID_FIELD_NUMBER: _ClassVar[int]
    RUNS_FROM_FIELD_NUMBER: _ClassVar[int]
    campaign_id: str
    runs_from: int
    def __init__(self, campaign_id: _Optional[str] = ..., runs_from: _Optional[int] = ...) -> None: ...

class ListRecordsResponse(_message.Message):
    __slots__ = ("files", "runs_next")
    FILES_FIELD_NUMBER: _ClassVar[int]
    RUNS_NEXT_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[RecordFile]
    runs_next: int
    def __init__(self, files: _Optional[_Iterable[_Union[RecordFile, _Mapping]]] = ..., runs_next: _Optional[int] = ...) -> None: ...

class RecordFile(_message.Message):
    __slots__ = ("run_id", "workload", "slice", "file", "bytes", "content_hash", "launches")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CONTENT_HASH_FIELD_NUMBER: _ClassVar[int]
    LAUNCHES_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    workload: str
    slice: int
    file: str
    bytes: int
    content_hash: str
    launches: int
    def __init__(self, run_id: _Optional[str] = ..., workload: _Optional[str] = ..., slice: _Optional[int] = ..., file: _Optional[str] = ..., bytes: _Optional[int] = ..., content_hash: _Optional[str] = ..., launches: _Optional[int] = ...) -> None: ...

class ReadRecordsRequest(_message.Message):
    __slots__ = ("campaign_id", "run_id", "slice", "offset")
    CAMPAIGN_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    campaign_id: str
    run_id: str
    slice: int
    offset: int
    def __init__(self, campaign_id: _Optional[str] = ..., run_id: _Optional[str] = ..., slice: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class RecordsChunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class StreamLaunchesRequest(_message.Message):
    __slots__ = ("campaign_id", "run_id", "columns", "cursor")
    CAMPAIGN_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    campaign_id: str
    run_id: str
    columns: _containers.RepeatedScalarFieldContainer[str]
    cursor: LaunchesCursor
    def __init__(self, campaign_id: _Optional[str] = ..., run_id: _Optional[str] = ..., columns: _Optional[_Iterable[str]] = ..., cursor: _Optional[_Union[LaunchesCursor, _Mapping]] = ...) -> None: ...

class LaunchesCursor(_message.Message):
    __slots__ = ("slice", "launch", "content_hash")
    SLICE_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_FIELD_NUMBER: _ClassVar[int]
    CONTENT_HASH_FIELD_NUMBER: _ClassVar[int]
    slice: int
    launch: int
    content_hash: str
    def __init__(self, slice: _Optional[int] = ..., launch: _Optional[int] = ..., content_hash: _Optional[str] = ...) -> None: ...

class LaunchesPart(_message.Message):
    __slots__ = ("names", "batch", "next")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    names: bytes
    batch: bytes
    next: LaunchesCursor
    def __init__(self, names: _Optional[bytes] = ..., batch: _Optional[bytes] = ..., next: _Optional[_Union[LaunchesCursor, _Mapping]] = ...) -> None: ...
