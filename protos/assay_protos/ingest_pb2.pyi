from assay_protos import common_pb2 as _common_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Part(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PART_UNSPECIFIED: _ClassVar[Part]
    PART_NAMES: _ClassVar[Part]
    PART_LAUNCHES: _ClassVar[Part]
PART_UNSPECIFIED: Part
PART_NAMES: Part
PART_LAUNCHES: Part

class SegmentHeader(_message.Message):
    __slots__ = ("key", "segment", "launches", "names_bytes", "launches_bytes", "names_hash", "launches_hash", "agent_id", "session_id", "write_secret")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    LAUNCHES_FIELD_NUMBER: _ClassVar[int]
    NAMES_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAUNCHES_BYTES_FIELD_NUMBER: _ClassVar[int]
    NAMES_HASH_FIELD_NUMBER: _ClassVar[int]
    LAUNCHES_HASH_FIELD_NUMBER: _ClassVar[int]
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    WRITE_SECRET_FIELD_NUMBER: _ClassVar[int]
    key: _common_pb2.AttemptKey
    segment: int
    launches: int
    names_bytes: int
    launches_bytes: int
    names_hash: bytes
    launches_hash: bytes
    agent_id: str
    session_id: str
    write_secret: bytes
    def __init__(self, key: _Optional[_Union[_common_pb2.AttemptKey, _Mapping]] = ..., segment: _Optional[int] = ..., launches: _Optional[int] = ..., names_bytes: _Optional[int] = ..., launches_bytes: _Optional[int] = ..., names_hash: _Optional[bytes] = ..., launches_hash: _Optional[bytes] = ..., agent_id: _Optional[str] = ..., session_id: _Optional[str] = ..., write_secret: _Optional[bytes] = ...) -> None: ...

class SegmentChunk(_message.Message):
    __slots__ = ("part", "data")
    PART_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    part: Part
    data: bytes
    def __init__(self, part: _Optional[_Union[Part, str]] = ..., data: _Optional[bytes] = ...) -> None: ...

class UploadRequest(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: SegmentHeader
    chunk: SegmentChunk
    def __init__(self, header: _Optional[_Union[SegmentHeader, _Mapping]] = ..., chunk: _Optional[_Union[SegmentChunk, _Mapping]] = ...) -> None: ...

class SegmentAck(_message.Message):
    __slots__ = ("key", "segment", "duplicate")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    key: _common_pb2.AttemptKey
    segment: int
    duplicate: bool
    def __init__(self, key: _Optional[_Union[_common_pb2.AttemptKey, _Mapping]] = ..., segment: _Optional[int] = ..., duplicate: _Optional[bool] = ...) -> None: ...

class SegmentRefusal(_message.Message):
    __slots__ = ("key", "segment", "failure")
    KEY_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    key: _common_pb2.AttemptKey
    segment: int
    failure: _common_pb2.Failure
    def __init__(self, key: _Optional[_Union[_common_pb2.AttemptKey, _Mapping]] = ..., segment: _Optional[int] = ..., failure: _Optional[_Union[_common_pb2.Failure, _Mapping]] = ...) -> None: ...

class UploadResponse(_message.Message):
    __slots__ = ("ack", "refusal")
    ACK_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    ack: SegmentAck
    refusal: SegmentRefusal
    def __init__(self, ack: _Optional[_Union[SegmentAck, _Mapping]] = ..., refusal: _Optional[_Union[SegmentRefusal, _Mapping]] = ...) -> None: ...
