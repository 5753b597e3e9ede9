from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Condition(_message.Message):
    __slots__ = ("cache", "clock", "sm_percent", "sm_share")
    CACHE_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    SM_PERCENT_FIELD_NUMBER: _ClassVar[int]
    SM_SHARE_FIELD_NUMBER: _ClassVar[int]
    cache: str
    clock: str
    sm_percent: float
    sm_share: str
    def __init__(self, cache: _Optional[str] = ..., clock: _Optional[str] = ..., sm_percent: _Optional[float] = ..., sm_share: _Optional[str] = ...) -> None: ...

class Device(_message.Message):
    __slots__ = ("index", "name", "uuid", "compute_capability", "sm_count", "memory_bytes")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    SM_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    index: int
    name: str
    uuid: str
    compute_capability: str
    sm_count: int
    memory_bytes: int
    def __init__(self, index: _Optional[int] = ..., name: _Optional[str] = ..., uuid: _Optional[str] = ..., compute_capability: _Optional[str] = ..., sm_count: _Optional[int] = ..., memory_bytes: _Optional[int] = ...) -> None: ...

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
