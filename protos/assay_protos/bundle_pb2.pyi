from assay_protos import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FindMissingRequest(_message.Message):
    __slots__ = ("bundles",)
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    bundles: _containers.RepeatedCompositeFieldContainer[_common_pb2.Bundle]
    def __init__(self, bundles: _Optional[_Iterable[_Union[_common_pb2.Bundle, _Mapping]]] = ...) -> None: ...

class FindMissingResponse(_message.Message):
    __slots__ = ("missing", "parts")
    MISSING_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    missing: _containers.RepeatedScalarFieldContainer[str]
    parts: _containers.RepeatedCompositeFieldContainer[BundlePart]
    def __init__(self, missing: _Optional[_Iterable[str]] = ..., parts: _Optional[_Iterable[_Union[BundlePart, _Mapping]]] = ...) -> None: ...

class BundlePart(_message.Message):
    __slots__ = ("sha256", "bytes", "part_sha256")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    PART_SHA256_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    bytes: int
    part_sha256: str
    def __init__(self, sha256: _Optional[str] = ..., bytes: _Optional[int] = ..., part_sha256: _Optional[str] = ...) -> None: ...

class BundleChunk(_message.Message):
    __slots__ = ("bundle", "data", "offset")
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    bundle: _common_pb2.Bundle
    data: bytes
    offset: int
    def __init__(self, bundle: _Optional[_Union[_common_pb2.Bundle, _Mapping]] = ..., data: _Optional[bytes] = ..., offset: _Optional[int] = ...) -> None: ...

class StoredBundle(_message.Message):
    __slots__ = ("bundle", "stored_bytes")
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    STORED_BYTES_FIELD_NUMBER: _ClassVar[int]
    bundle: _common_pb2.Bundle
    stored_bytes: int
    def __init__(self, bundle: _Optional[_Union[_common_pb2.Bundle, _Mapping]] = ..., stored_bytes: _Optional[int] = ...) -> None: ...

class FetchBundleRequest(_message.Message):
    __slots__ = ("agent_id", "session_id", "key", "write_secret", "sha256")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    WRITE_SECRET_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    session_id: str
    key: _common_pb2.AttemptKey
    write_secret: bytes
    sha256: str
    def __init__(self, agent_id: _Optional[str] = ..., session_id: _Optional[str] = ..., key: _Optional[_Union[_common_pb2.AttemptKey, _Mapping]] = ..., write_secret: _Optional[bytes] = ..., sha256: _Optional[str] = ...) -> None: ...
