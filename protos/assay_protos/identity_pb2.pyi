from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Role(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ROLE_UNSPECIFIED: _ClassVar[Role]
    ROLE_AGENT: _ClassVar[Role]
    ROLE_VIEWER: _ClassVar[Role]
    ROLE_SUBMITTER: _ClassVar[Role]
    ROLE_OPERATOR: _ClassVar[Role]
    ROLE_ADMIN: _ClassVar[Role]
ROLE_UNSPECIFIED: Role
ROLE_AGENT: Role
ROLE_VIEWER: Role
ROLE_SUBMITTER: Role
ROLE_OPERATOR: Role
ROLE_ADMIN: Role

class JoinRequest(_message.Message):
    __slots__ = ("secret", "certificate_request", "name", "identity_id")
    SECRET_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_ID_FIELD_NUMBER: _ClassVar[int]
    secret: bytes
    certificate_request: bytes
    name: str
    identity_id: str
    def __init__(self, secret: _Optional[bytes] = ..., certificate_request: _Optional[bytes] = ..., name: _Optional[str] = ..., identity_id: _Optional[str] = ...) -> None: ...

class JoinResponse(_message.Message):
    __slots__ = ("certificate", "name", "role", "port")
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    name: str
    role: Role
    port: int
    def __init__(self, certificate: _Optional[bytes] = ..., name: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., port: _Optional[int] = ...) -> None: ...

class RenewRequest(_message.Message):
    __slots__ = ("certificate_request", "identity_id")
    CERTIFICATE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_ID_FIELD_NUMBER: _ClassVar[int]
    certificate_request: bytes
    identity_id: str
    def __init__(self, certificate_request: _Optional[bytes] = ..., identity_id: _Optional[str] = ...) -> None: ...

class RenewResponse(_message.Message):
    __slots__ = ("certificate",)
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    certificate: bytes
    def __init__(self, certificate: _Optional[bytes] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LeaveResponse(_message.Message):
    __slots__ = ("serial",)
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    serial: str
    def __init__(self, serial: _Optional[str] = ...) -> None: ...

class MakeTokenRequest(_message.Message):
    __slots__ = ("role", "name", "project", "labels", "uses", "valid_ms")
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    USES_FIELD_NUMBER: _ClassVar[int]
    VALID_MS_FIELD_NUMBER: _ClassVar[int]
    role: Role
    name: str
    project: str
    labels: _containers.RepeatedScalarFieldContainer[str]
    uses: int
    valid_ms: int
    def __init__(self, role: _Optional[_Union[Role, str]] = ..., name: _Optional[str] = ..., project: _Optional[str] = ..., labels: _Optional[_Iterable[str]] = ..., uses: _Optional[int] = ..., valid_ms: _Optional[int] = ...) -> None: ...

class MakeTokenResponse(_message.Message):
    __slots__ = ("token", "token_id", "fingerprint", "expires_at_ms", "join_port", "join_address")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    JOIN_PORT_FIELD_NUMBER: _ClassVar[int]
    JOIN_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    token: str
    token_id: str
    fingerprint: str
    expires_at_ms: int
    join_port: int
    join_address: str
    def __init__(self, token: _Optional[str] = ..., token_id: _Optional[str] = ..., fingerprint: _Optional[str] = ..., expires_at_ms: _Optional[int] = ..., join_port: _Optional[int] = ..., join_address: _Optional[str] = ...) -> None: ...

class RevokeRequest(_message.Message):
    __slots__ = ("subject", "tokens")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    subject: str
    tokens: bool
    def __init__(self, subject: _Optional[str] = ..., tokens: _Optional[bool] = ...) -> None: ...

class RevokeResponse(_message.Message):
    __slots__ = ("what", "id", "name", "tokens", "tokens_withdrawn")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    what: str
    id: str
    name: str
    tokens: _containers.RepeatedScalarFieldContainer[str]
    tokens_withdrawn: bool
    def __init__(self, what: _Optional[str] = ..., id: _Optional[str] = ..., name: _Optional[str] = ..., tokens: _Optional[_Iterable[str]] = ..., tokens_withdrawn: _Optional[bool] = ...) -> None: ...

class ListIdentitiesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class IssuedCertificate(_message.Message):
    __slots__ = ("serial", "issued_at_ms", "expires_at_ms", "withdrawn_at_ms")
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    ISSUED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    serial: str
    issued_at_ms: int
    expires_at_ms: int
    withdrawn_at_ms: int
    def __init__(self, serial: _Optional[str] = ..., issued_at_ms: _Optional[int] = ..., expires_at_ms: _Optional[int] = ..., withdrawn_at_ms: _Optional[int] = ...) -> None: ...

class KnownIdentity(_message.Message):
    __slots__ = ("identity_id", "kind", "name", "role", "project", "labels", "created_at_ms", "revoked_at_ms", "certificates")
    IDENTITY_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    REVOKED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    identity_id: str
    kind: str
    name: str
    role: Role
    project: str
    labels: _containers.RepeatedScalarFieldContainer[str]
    created_at_ms: int
    revoked_at_ms: int
    certificates: _containers.RepeatedCompositeFieldContainer[IssuedCertificate]
    def __init__(self, identity_id: _Optional[str] = ..., kind: _Optional[str] = ..., name: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., project: _Optional[str] = ..., labels: _Optional[_Iterable[str]] = ..., created_at_ms: _Optional[int] = ..., revoked_at_ms: _Optional[int] = ..., certificates: _Optional[_Iterable[_Union[IssuedCertificate, _Mapping]]] = ...) -> None: ...

class OpenToken(_message.Message):
    __slots__ = ("token_id", "role", "name", "project", "labels", "uses_left", "expires_at_ms")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    USES_LEFT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    role: Role
    name: str
    project: str
    labels: _containers.RepeatedScalarFieldContainer[str]
    uses_left: int
    expires_at_ms: int
    def __init__(self, token_id: _Optional[str] = ..., role: _Optional[_Union[Role, str]] = ..., name: _Optional[str] = ..., project: _Optional[str] = ..., labels: _Optional[_Iterable[str]] = ..., uses_left: _Optional[int] = ..., expires_at_ms: _Optional[int] = ...) -> None: ...

class ListIdentitiesResponse(_message.Message):
    __slots__ = ("identities", "tokens")
    IDENTITIES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    identities: _containers.RepeatedCompositeFieldContainer[KnownIdentity]
    tokens: _containers.RepeatedCompositeFieldContainer[OpenToken]
    def __init__(self, identities: _Optional[_Iterable[_Union[KnownIdentity, _Mapping]]] = ..., tokens: _Optional[_Iterable[_Union[OpenToken, _Mapping]]] = ...) -> None: ...

class MakeWebLinkRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MakeWebLinkResponse(_message.Message):
    __slots__ = ("url", "expires_at_ms")
    URL_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    url: str
    expires_at_ms: int
    def __init__(self, url: _Optional[str] = ..., expires_at_ms: _Optional[int] = ...) -> None: ...
