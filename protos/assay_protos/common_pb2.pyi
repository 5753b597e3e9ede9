from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Level(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEVEL_UNSPECIFIED: _ClassVar[Level]
    LEVEL_DETAILED: _ClassVar[Level]
    LEVEL_LIGHT: _ClassVar[Level]
    LEVEL_BARE: _ClassVar[Level]

class Cache(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CACHE_UNSPECIFIED: _ClassVar[Cache]
    CACHE_NONE: _ClassVar[Cache]
    CACHE_ALL: _ClassVar[Cache]

class Clock(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CLOCK_UNSPECIFIED: _ClassVar[Clock]
    CLOCK_NONE: _ClassVar[Clock]
    CLOCK_BASE: _ClassVar[Clock]
    CLOCK_BOOST: _ClassVar[Clock]

class SmShare(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SM_SHARE_UNSPECIFIED: _ClassVar[SmShare]
    SM_SHARE_LIMIT: _ClassVar[SmShare]
    SM_SHARE_PARTITION: _ClassVar[SmShare]
LEVEL_UNSPECIFIED: Level
LEVEL_DETAILED: Level
LEVEL_LIGHT: Level
LEVEL_BARE: Level
CACHE_UNSPECIFIED: Cache
CACHE_NONE: Cache
CACHE_ALL: Cache
CLOCK_UNSPECIFIED: Clock
CLOCK_NONE: Clock
CLOCK_BASE: Clock
CLOCK_BOOST: Clock
SM_SHARE_UNSPECIFIED: SmShare
SM_SHARE_LIMIT: SmShare
SM_SHARE_PARTITION: SmShare

class Condition(_message.Message):
    __slots__ = ("sm_percent", "cache", "clock", "sm_share")
    SM_PERCENT_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    SM_SHARE_FIELD_NUMBER: _ClassVar[int]
    sm_percent: float
    cache: Cache
    clock: Clock
    sm_share: SmShare
    def __init__(self, sm_percent: _Optional[float] = ..., cache: _Optional[_Union[Cache, str]] = ..., clock: _Optional[_Union[Clock, str]] = ..., sm_share: _Optional[_Union[SmShare, str]] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("index", "name", "uuid", "compute_capability", "sm_count", "memory_bytes", "problem", "left_out")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    SM_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    index: int
    name: str
    uuid: str
    compute_capability: str
    sm_count: int
    memory_bytes: int
    problem: str
    left_out: str
    def __init__(self, index: _Optional[int] = ..., name: _Optional[str] = ..., uuid: _Optional[str] = ..., compute_capability: _Optional[str] = ..., sm_count: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., problem: _Optional[str] = ..., left_out: _Optional[str] = ...) -> None: ...

class AttemptKey(_message.Message):
    __slots__ = ("run_id", "slice", "attempt", "token")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    slice: int
    attempt: int
    token: int
    def __init__(self, run_id: _Optional[str] = ..., slice: _Optional[int] = ..., attempt: _Optional[int] = ..., token: _Optional[int] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("failure_class", "subject", "cause", "remedy", "retryable")
    FAILURE_CLASS_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    REMEDY_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    failure_class: str
    subject: str
    cause: str
    remedy: str
    retryable: bool
    def __init__(self, failure_class: _Optional[str] = ..., subject: _Optional[str] = ..., cause: _Optional[str] = ..., remedy: _Optional[str] = ..., retryable: _Optional[bool] = ...) -> None: ...

class ValidityFlag(_message.Message):
    __slots__ = ("name", "detail", "invalidates")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    INVALIDATES_FIELD_NUMBER: _ClassVar[int]
    name: str
    detail: str
    invalidates: bool
    def __init__(self, name: _Optional[str] = ..., detail: _Optional[str] = ..., invalidates: _Optional[bool] = ...) -> None: ...

class Bundle(_message.Message):
    __slots__ = ("sha256", "bytes", "files")
    SHA256_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    sha256: str
    bytes: int
    files: int
    def __init__(self, sha256: _Optional[str] = ..., bytes: _Optional[int] = ..., files: _Optional[int] = ...) -> None: ...
