from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReadAuditRequest(_message.Message):
    __slots__ = ("before", "most", "identity", "since_ms")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    before: int
    most: int
    identity: str
    since_ms: int
    def __init__(self, before: _Optional[int] = ..., most: _Optional[int] = ..., identity: _Optional[str] = ..., since_ms: _Optional[int] = ...) -> None: ...

class AuditEntry(_message.Message):
    __slots__ = ("entry_id", "at_ms", "identity_id", "name", "role", "how", "address", "call", "subject", "outcome", "detail")
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    HOW_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    entry_id: int
    at_ms: int
    identity_id: str
    name: str
    role: str
    how: str
    address: str
    call: str
    subject: str
    outcome: str
    detail: str
    def __init__(self, entry_id: _Optional[int] = ..., at_ms: _Optional[int] = ..., identity_id: _Optional[str] = ..., name: _Optional[str] = ..., role: _Optional[str] = ..., how: _Optional[str] = ..., address: _Optional[str] = ..., call: _Optional[str] = ..., subject: _Optional[str] = ..., outcome: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class ReadAuditResponse(_message.Message):
    __slots__ = ("entries", "next")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[AuditEntry]
    next: int
    def __init__(self, entries: _Optional[_Iterable[_Union[AuditEntry, _Mapping]]] = ..., next: _Optional[int] = ...) -> None: ...

class SetRoleRequest(_message.Message):
    __slots__ = ("identity", "role", "project", "keep_project")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    KEEP_PROJECT_FIELD_NUMBER: _ClassVar[int]
    identity: str
    role: str
    project: str
    keep_project: bool
    def __init__(self, identity: _Optional[str] = ..., role: _Optional[str] = ..., project: _Optional[str] = ..., keep_project: _Optional[bool] = ...) -> None: ...

class SetRoleResponse(_message.Message):
    __slots__ = ("identity_id", "name", "role", "project")
    IDENTITY_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    identity_id: str
    name: str
    role: str
    project: str
    def __init__(self, identity_id: _Optional[str] = ..., name: _Optional[str] = ..., role: _Optional[str] = ..., project: _Optional[str] = ...) -> None: ...
