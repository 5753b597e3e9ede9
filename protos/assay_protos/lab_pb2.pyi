from assay_protos import agent_pb2 as _agent_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SlotHealth(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SLOT_HEALTH_UNSPECIFIED: _ClassVar[SlotHealth]
    SLOT_HEALTH_READY: _ClassVar[SlotHealth]
    SLOT_HEALTH_RESTING: _ClassVar[SlotHealth]
    SLOT_HEALTH_QUARANTINED: _ClassVar[SlotHealth]
    SLOT_HEALTH_LOST: _ClassVar[SlotHealth]
    SLOT_HEALTH_MAINTENANCE: _ClassVar[SlotHealth]

class WaitKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WAIT_KIND_UNSPECIFIED: _ClassVar[WaitKind]
    WAIT_KIND_CAMPAIGN_PAUSED: _ClassVar[WaitKind]
    WAIT_KIND_PAUSED: _ClassVar[WaitKind]
    WAIT_KIND_LIGHT_RUN: _ClassVar[WaitKind]
    WAIT_KIND_AFTER: _ClassVar[WaitKind]
    WAIT_KIND_NO_AGENT: _ClassVar[WaitKind]
    WAIT_KIND_NOT_OFFERED: _ClassVar[WaitKind]
    WAIT_KIND_AGENT_AWAY: _ClassVar[WaitKind]
    WAIT_KIND_OUT_OF_SERVICE: _ClassVar[WaitKind]
    WAIT_KIND_MAINTENANCE: _ClassVar[WaitKind]
    WAIT_KIND_RESTING: _ClassVar[WaitKind]
    WAIT_KIND_BUDGET: _ClassVar[WaitKind]
    WAIT_KIND_EXCLUSIVE: _ClassVar[WaitKind]
    WAIT_KIND_QUEUED: _ClassVar[WaitKind]
    WAIT_KIND_GANG: _ClassVar[WaitKind]
SLOT_HEALTH_UNSPECIFIED: SlotHealth
SLOT_HEALTH_READY: SlotHealth
SLOT_HEALTH_RESTING: SlotHealth
SLOT_HEALTH_QUARANTINED: SlotHealth
SLOT_HEALTH_LOST: SlotHealth
SLOT_HEALTH_MAINTENANCE: SlotHealth
WAIT_KIND_UNSPECIFIED: WaitKind
WAIT_KIND_CAMPAIGN_PAUSED: WaitKind
WAIT_KIND_PAUSED: WaitKind
WAIT_KIND_LIGHT_RUN: WaitKind
WAIT_KIND_AFTER: WaitKind
WAIT_KIND_NO_AGENT: WaitKind
WAIT_KIND_NOT_OFFERED: WaitKind
WAIT_KIND_AGENT_AWAY: WaitKind
WAIT_KIND_OUT_OF_SERVICE: WaitKind
WAIT_KIND_MAINTENANCE: WaitKind
WAIT_KIND_RESTING: WaitKind
WAIT_KIND_BUDGET: WaitKind
WAIT_KIND_EXCLUSIVE: WaitKind
WAIT_KIND_QUEUED: WaitKind
WAIT_KIND_GANG: WaitKind

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

class ListBudgetsRequest(_message.Message):
    __slots__ = ("identity",)
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    identity: str
    def __init__(self, identity: _Optional[str] = ...) -> None: ...

class PersonBudget(_message.Message):
    __slots__ = ("identity_id", "name", "role", "project", "own_gpu_hours", "gpu_hours", "used_gpu_hours")
    IDENTITY_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    OWN_GPU_HOURS_FIELD_NUMBER: _ClassVar[int]
    GPU_HOURS_FIELD_NUMBER: _ClassVar[int]
    USED_GPU_HOURS_FIELD_NUMBER: _ClassVar[int]
    identity_id: str
    name: str
    role: str
    project: str
    own_gpu_hours: float
    gpu_hours: float
    used_gpu_hours: float
    def __init__(self, identity_id: _Optional[str] = ..., name: _Optional[str] = ..., role: _Optional[str] = ..., project: _Optional[str] = ..., own_gpu_hours: _Optional[float] = ..., gpu_hours: _Optional[float] = ..., used_gpu_hours: _Optional[float] = ...) -> None: ...

class ListBudgetsResponse(_message.Message):
    __slots__ = ("people", "days")
    PEOPLE_FIELD_NUMBER: _ClassVar[int]
    DAYS_FIELD_NUMBER: _ClassVar[int]
    people: _containers.RepeatedCompositeFieldContainer[PersonBudget]
    days: int
    def __init__(self, people: _Optional[_Iterable[_Union[PersonBudget, _Mapping]]] = ..., days: _Optional[int] = ...) -> None: ...

class SetBudgetRequest(_message.Message):
    __slots__ = ("identity", "gpu_hours")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    GPU_HOURS_FIELD_NUMBER: _ClassVar[int]
    identity: str
    gpu_hours: float
    def __init__(self, identity: _Optional[str] = ..., gpu_hours: _Optional[float] = ...) -> None: ...

class ListAgentsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LabAgents(_message.Message):
    __slots__ = ("agents",)
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    agents: _containers.RepeatedCompositeFieldContainer[LabAgent]
    def __init__(self, agents: _Optional[_Iterable[_Union[LabAgent, _Mapping]]] = ...) -> None: ...

class LabAgent(_message.Message):
    __slots__ = ("agent_id", "name", "inventory", "labels", "present", "seen_at_ms", "since_ms", "slots")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INVENTORY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    SEEN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    name: str
    inventory: _agent_pb2.Inventory
    labels: _containers.RepeatedScalarFieldContainer[str]
    present: bool
    seen_at_ms: int
    since_ms: int
    slots: _containers.RepeatedCompositeFieldContainer[LabSlot]
    def __init__(self, agent_id: _Optional[str] = ..., name: _Optional[str] = ..., inventory: _Optional[_Union[_agent_pb2.Inventory, _Mapping]] = ..., labels: _Optional[_Iterable[str]] = ..., present: _Optional[bool] = ..., seen_at_ms: _Optional[int] = ..., since_ms: _Optional[int] = ..., slots: _Optional[_Iterable[_Union[LabSlot, _Mapping]]] = ...) -> None: ...

class LabSlot(_message.Message):
    __slots__ = ("slot", "health", "why", "rest_remaining_ms", "run_id", "slice", "leased_at_ms", "maintenance_until_ms", "sample")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    REST_REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    LEASED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    MAINTENANCE_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    slot: _agent_pb2.Slot
    health: SlotHealth
    why: str
    rest_remaining_ms: int
    run_id: str
    slice: int
    leased_at_ms: int
    maintenance_until_ms: int
    sample: _agent_pb2.GpuSample
    def __init__(self, slot: _Optional[_Union[_agent_pb2.Slot, _Mapping]] = ..., health: _Optional[_Union[SlotHealth, str]] = ..., why: _Optional[str] = ..., rest_remaining_ms: _Optional[int] = ..., run_id: _Optional[str] = ..., slice: _Optional[int] = ..., leased_at_ms: _Optional[int] = ..., maintenance_until_ms: _Optional[int] = ..., sample: _Optional[_Union[_agent_pb2.GpuSample, _Mapping]] = ...) -> None: ...

class GetQueueRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LabQueue(_message.Message):
    __slots__ = ("queued", "campaigns_left_out")
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    CAMPAIGNS_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    queued: _containers.RepeatedCompositeFieldContainer[QueuedRuns]
    campaigns_left_out: int
    def __init__(self, queued: _Optional[_Iterable[_Union[QueuedRuns, _Mapping]]] = ..., campaigns_left_out: _Optional[int] = ...) -> None: ...

class QueuedRuns(_message.Message):
    __slots__ = ("campaign_id", "first_run_id", "device_kind", "profiler", "runs", "kind", "reason", "ahead", "runs_ahead", "estimate", "owner_name", "project")
    CAMPAIGN_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_KIND_FIELD_NUMBER: _ClassVar[int]
    PROFILER_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    RUNS_AHEAD_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    OWNER_NAME_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    campaign_id: str
    first_run_id: str
    device_kind: str
    profiler: str
    runs: int
    kind: WaitKind
    reason: str
    ahead: _containers.RepeatedScalarFieldContainer[str]
    runs_ahead: int
    estimate: Estimate
    owner_name: str
    project: str
    def __init__(self, campaign_id: _Optional[str] = ..., first_run_id: _Optional[str] = ..., device_kind: _Optional[str] = ..., profiler: _Optional[str] = ..., runs: _Optional[int] = ..., kind: _Optional[_Union[WaitKind, str]] = ..., reason: _Optional[str] = ..., ahead: _Optional[_Iterable[str]] = ..., runs_ahead: _Optional[int] = ..., estimate: _Optional[_Union[Estimate, _Mapping]] = ..., owner_name: _Optional[str] = ..., project: _Optional[str] = ...) -> None: ...

class Estimate(_message.Message):
    __slots__ = ("known", "remaining_ms", "missing", "at_least", "low_ms", "high_ms", "assumed")
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    LOW_MS_FIELD_NUMBER: _ClassVar[int]
    HIGH_MS_FIELD_NUMBER: _ClassVar[int]
    ASSUMED_FIELD_NUMBER: _ClassVar[int]
    known: bool
    remaining_ms: int
    missing: str
    at_least: bool
    low_ms: int
    high_ms: int
    assumed: bool
    def __init__(self, known: _Optional[bool] = ..., remaining_ms: _Optional[int] = ..., missing: _Optional[str] = ..., at_least: _Optional[bool] = ..., low_ms: _Optional[int] = ..., high_ms: _Optional[int] = ..., assumed: _Optional[bool] = ...) -> None: ...
