from assay_protos import common_pb2 as _common_pb2
from assay_protos import lab_pb2 as _lab_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CampaignState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CAMPAIGN_STATE_UNSPECIFIED: _ClassVar[CampaignState]
    CAMPAIGN_STATE_RUNNING: _ClassVar[CampaignState]
    CAMPAIGN_STATE_ANALYSING: _ClassVar[CampaignState]
    CAMPAIGN_STATE_DONE: _ClassVar[CampaignState]
    CAMPAIGN_STATE_FAILED: _ClassVar[CampaignState]
    CAMPAIGN_STATE_CANCELLED: _ClassVar[CampaignState]

class RunState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_STATE_UNSPECIFIED: _ClassVar[RunState]
    RUN_STATE_WAITING: _ClassVar[RunState]
    RUN_STATE_RUNNING: _ClassVar[RunState]
    RUN_STATE_DONE: _ClassVar[RunState]
    RUN_STATE_FAILED: _ClassVar[RunState]
    RUN_STATE_CANCELLED: _ClassVar[RunState]

class AttemptState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ATTEMPT_STATE_UNSPECIFIED: _ClassVar[AttemptState]
    ATTEMPT_STATE_LEASED: _ClassVar[AttemptState]
    ATTEMPT_STATE_PUBLISHING: _ClassVar[AttemptState]
    ATTEMPT_STATE_PUBLISHED: _ClassVar[AttemptState]
    ATTEMPT_STATE_FAILED: _ClassVar[AttemptState]
    ATTEMPT_STATE_EXPIRED: _ClassVar[AttemptState]
    ATTEMPT_STATE_SUPERSEDED: _ClassVar[AttemptState]
    ATTEMPT_STATE_CANCELLED: _ClassVar[AttemptState]

class SetAsideReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SET_ASIDE_REASON_UNSPECIFIED: _ClassVar[SetAsideReason]
    SET_ASIDE_REASON_UNKNOWN_TO_DATABASE: _ClassVar[SetAsideReason]
    SET_ASIDE_REASON_CHANGED: _ClassVar[SetAsideReason]

class FileChange(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FILE_CHANGE_UNSPECIFIED: _ClassVar[FileChange]
    FILE_CHANGE_MISSING: _ClassVar[FileChange]
    FILE_CHANGE_CHANGED: _ClassVar[FileChange]
    FILE_CHANGE_UNREADABLE: _ClassVar[FileChange]

class ReportFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPORT_FORMAT_UNSPECIFIED: _ClassVar[ReportFormat]
    REPORT_FORMAT_JSON: _ClassVar[ReportFormat]
    REPORT_FORMAT_HTML: _ClassVar[ReportFormat]
CAMPAIGN_STATE_UNSPECIFIED: CampaignState
CAMPAIGN_STATE_RUNNING: CampaignState
CAMPAIGN_STATE_ANALYSING: CampaignState
CAMPAIGN_STATE_DONE: CampaignState
CAMPAIGN_STATE_FAILED: CampaignState
CAMPAIGN_STATE_CANCELLED: CampaignState
RUN_STATE_UNSPECIFIED: RunState
RUN_STATE_WAITING: RunState
RUN_STATE_RUNNING: RunState
RUN_STATE_DONE: RunState
RUN_STATE_FAILED: RunState
RUN_STATE_CANCELLED: RunState
ATTEMPT_STATE_UNSPECIFIED: AttemptState
ATTEMPT_STATE_LEASED: AttemptState
ATTEMPT_STATE_PUBLISHING: AttemptState
ATTEMPT_STATE_PUBLISHED: AttemptState
ATTEMPT_STATE_FAILED: AttemptState
ATTEMPT_STATE_EXPIRED: AttemptState
ATTEMPT_STATE_SUPERSEDED: AttemptState
ATTEMPT_STATE_CANCELLED: AttemptState
SET_ASIDE_REASON_UNSPECIFIED: SetAsideReason
SET_ASIDE_REASON_UNKNOWN_TO_DATABASE: SetAsideReason
SET_ASIDE_REASON_CHANGED: SetAsideReason
FILE_CHANGE_UNSPECIFIED: FileChange
FILE_CHANGE_MISSING: FileChange
FILE_CHANGE_CHANGED: FileChange
FILE_CHANGE_UNREADABLE: FileChange
REPORT_FORMAT_UNSPECIFIED: ReportFormat
REPORT_FORMAT_JSON: ReportFormat
REPORT_FORMAT_HTML: ReportFormat

class SubmitRequest(_message.Message):
    __slots__ = ("campaign_yaml", "file_name", "base_directory", "bundles", "asks_for_folders", "key")
    class BundlesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _common_pb2.Bundle
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_common_pb2.Bundle, _Mapping]] = ...) -> None: ...
    CAMPAIGN_YAML_FIELD_NUMBER: _ClassVar[int]
    FILE_NAME_FIELD_NUMBER: _ClassVar[int]
    BASE_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    ASKS_FOR_FOLDERS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    campaign_yaml: str
    file_name: str
    base_directory: str
    bundles: _containers.MessageMap[str, _common_pb2.Bundle]
    asks_for_folders: bool
    key: str
    def __init__(self, campaign_yaml: _Optional[str] = ..., file_name: _Optional[str] = ..., base_directory: _Optional[str] = ..., bundles: _Optional[_Mapping[str, _common_pb2.Bundle]] = ..., asks_for_folders: _Optional[bool] = ..., key: _Optional[str] = ...) -> None: ...

class SubmitResponse(_message.Message):
    __slots__ = ("campaign_id", "runs", "folders")
    CAMPAIGN_ID_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    FOLDERS_FIELD_NUMBER: _ClassVar[int]
    campaign_id: str
    runs: int
    folders: _containers.RepeatedCompositeFieldContainer[BundleFolder]
    def __init__(self, campaign_id: _Optional[str] = ..., runs: _Optional[int] = ..., folders: _Optional[_Iterable[_Union[BundleFolder, _Mapping]]] = ...) -> None: ...

class BundleFolder(_message.Message):
    __slots__ = ("folder", "workload", "line")
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    folder: str
    workload: str
    line: int
    def __init__(self, folder: _Optional[str] = ..., workload: _Optional[str] = ..., line: _Optional[int] = ...) -> None: ...

class ListCampaignsRequest(_message.Message):
    __slots__ = ("campaigns_from", "campaigns_most")
    CAMPAIGNS_FROM_FIELD_NUMBER: _ClassVar[int]
    CAMPAIGNS_MOST_FIELD_NUMBER: _ClassVar[int]
    campaigns_from: int
    campaigns_most: int
    def __init__(self, campaigns_from: _Optional[int] = ..., campaigns_most: _Optional[int] = ...) -> None: ...

class ListCampaignsResponse(_message.Message):
    __slots__ = ("campaigns", "resting", "set_aside", "changed", "campaigns_next", "spools", "shortage")
    CAMPAIGNS_FIELD_NUMBER: _ClassVar[int]
    RESTING_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    CAMPAIGNS_NEXT_FIELD_NUMBER: _ClassVar[int]
    SPOOLS_FIELD_NUMBER: _ClassVar[int]
    SHORTAGE_FIELD_NUMBER: _ClassVar[int]
    campaigns: _containers.RepeatedCompositeFieldContainer[CampaignStatus]
    resting: _containers.RepeatedCompositeFieldContainer[SlotRest]
    set_aside: _containers.RepeatedCompositeFieldContainer[SetAside]
    changed: _containers.RepeatedCompositeFieldContainer[ChangedFile]
    campaigns_next: int
    spools: _containers.RepeatedCompositeFieldContainer[AgentSpool]
    shortage: Shortage
    def __init__(self, campaigns: _Optional[_Iterable[_Union[CampaignStatus, _Mapping]]] = ..., resting: _Optional[_Iterable[_Union[SlotRest, _Mapping]]] = ..., set_aside: _Optional[_Iterable[_Union[SetAside, _Mapping]]] = ..., changed: _Optional[_Iterable[_Union[ChangedFile, _Mapping]]] = ..., campaigns_next: _Optional[int] = ..., spools: _Optional[_Iterable[_Union[AgentSpool, _Mapping]]] = ..., shortage: _Optional[_Union[Shortage, _Mapping]] = ...) -> None: ...

class Shortage(_message.Message):
    __slots__ = ("used_bytes", "limit_bytes", "free_bytes", "minimum_free_bytes")
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    used_bytes: int
    limit_bytes: int
    free_bytes: int
    minimum_free_bytes: int
    def __init__(self, used_bytes: _Optional[int] = ..., limit_bytes: _Optional[int] = ..., free_bytes: _Optional[int] = ..., minimum_free_bytes: _Optional[int] = ...) -> None: ...

class AgentSpool(_message.Message):
    __slots__ = ("agent", "used_bytes", "limit_bytes", "waits", "damaged")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    agent: str
    used_bytes: int
    limit_bytes: int
    waits: bool
    damaged: int
    def __init__(self, agent: _Optional[str] = ..., used_bytes: _Optional[int] = ..., limit_bytes: _Optional[int] = ..., waits: _Optional[bool] = ..., damaged: _Optional[int] = ...) -> None: ...

class SlotRest(_message.Message):
    __slots__ = ("agent", "slot", "failures", "remaining_ms", "failure")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    agent: str
    slot: str
    failures: int
    remaining_ms: int
    failure: _common_pb2.Failure
    def __init__(self, agent: _Optional[str] = ..., slot: _Optional[str] = ..., failures: _Optional[int] = ..., remaining_ms: _Optional[int] = ..., failure: _Optional[_Union[_common_pb2.Failure, _Mapping]] = ...) -> None: ...

class SetAside(_message.Message):
    __slots__ = ("folder", "set_aside_at_ms", "files", "bytes", "names", "reason")
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    folder: str
    set_aside_at_ms: int
    files: int
    bytes: int
    names: _containers.RepeatedScalarFieldContainer[str]
    reason: SetAsideReason
    def __init__(self, folder: _Optional[str] = ..., set_aside_at_ms: _Optional[int] = ..., files: _Optional[int] = ..., bytes: _Optional[int] = ..., names: _Optional[_Iterable[str]] = ..., reason: _Optional[_Union[SetAsideReason, str]] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ("campaign_id", "runs_from", "runs_most", "without_runs", "following")
    CAMPAIGN_ID_FIELD_NUMBER: _ClassVar[int]
    RUNS_FROM_FIELD_NUMBER: _ClassVar[int]
    RUNS_MOST_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_RUNS_FIELD_NUMBER: _ClassVar[int]
    FOLLOWING_FIELD_NUMBER: _ClassVar[int]
    campaign_id: str
    runs_from: int
    runs_most: int
    without_runs: bool
    following: bool
    def __init__(self, campaign_id: _Optional[str] = ..., runs_from: _Optional[int] = ..., runs_most: _Optional[int] = ..., without_runs: _Optional[bool] = ..., following: _Optional[bool] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("campaign_id",)
    CAMPAIGN_ID_FIELD_NUMBER: _ClassVar[int]
    campaign_id: str
    def __init__(self, campaign_id: _Optional[str] = ...) -> None: ...

class RunsRequest(_message.Message):
    __slots__ = ("campaign_id", "workload", "run_id", "at_once")
    CAMPAIGN_ID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    campaign_id: str
    workload: str
    run_id: str
    at_once: bool
    def __init__(self, campaign_id: _Optional[str] = ..., workload: _Optional[str] = ..., run_id: _Optional[str] = ..., at_once: _Optional[bool] = ...) -> None: ...

class RunsAnswer(_message.Message):
    __slots__ = ("campaign", "runs_changed", "attempts_ended", "attempts_running")
    CAMPAIGN_FIELD_NUMBER: _ClassVar[int]
    RUNS_CHANGED_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_ENDED_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    campaign: CampaignStatus
    runs_changed: int
    attempts_ended: int
    attempts_running: int
    def __init__(self, campaign: _Optional[_Union[CampaignStatus, _Mapping]] = ..., runs_changed: _Optional[int] = ..., attempts_ended: _Optional[int] = ..., attempts_running: _Optional[int] = ...) -> None: ...

class RunStatus(_message.Message):
    __slots__ = ("run_id", "workload", "device_kind", "condition", "repeat", "launches", "attempts", "flags", "failure", "agent", "waiting_for", "slices", "slices_done", "retries", "level", "state", "paused")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    DEVICE_KIND_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    REPEAT_FIELD_NUMBER: _ClassVar[int]
    LAUNCHES_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    SLICES_DONE_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    workload: str
    device_kind: str
    condition: _common_pb2.Condition
    repeat: int
    launches: int
    attempts: int
    flags: _containers.RepeatedCompositeFieldContainer[_common_pb2.ValidityFlag]
    failure: _common_pb2.Failure
    agent: str
    waiting_for: str
    slices: int
    slices_done: int
    retries: int
    level: _common_pb2.Level
    state: RunState
    paused: bool
    def __init__(self, run_id: _Optional[str] = ..., workload: _Optional[str] = ..., device_kind: _Optional[str] = ..., condition: _Optional[_Union[_common_pb2.Condition, _Mapping]] = ..., repeat: _Optional[int] = ..., launches: _Optional[int] = ..., attempts: _Optional[int] = ..., flags: _Optional[_Iterable[_Union[_common_pb2.ValidityFlag, _Mapping]]] = ..., failure: _Optional[_Union[_common_pb2.Failure, _Mapping]] = ..., agent: _Optional[str] = ..., waiting_for: _Optional[str] = ..., slices: _Optional[int] = ..., slices_done: _Optional[int] = ..., retries: _Optional[int] = ..., level: _Optional[_Union[_common_pb2.Level, str]] = ..., state: _Optional[_Union[RunState, str]] = ..., paused: _Optional[bool] = ...) -> None: ...

class WaitingRuns(_message.Message):
    __slots__ = ("reason", "first_run_id", "runs", "kind")
    REASON_FIELD_NUMBER: _ClassVar[int]
    FIRST_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    reason: str
    first_run_id: str
    runs: int
    kind: _lab_pb2.WaitKind
    def __init__(self, reason: _Optional[str] = ..., first_run_id: _Optional[str] = ..., runs: _Optional[int] = ..., kind: _Optional[_Union[_lab_pb2.WaitKind, str]] = ...) -> None: ...

class CampaignStatus(_message.Message):
    __slots__ = ("campaign_id", "name", "synthetic", "runs", "failure", "runs_total", "runs_done", "runs_failed", "resting", "runs_running", "slices", "slices_done", "retries", "waiting", "runs_next", "state", "owner", "owner_name", "project", "paused", "runs_paused", "runs_cancelled", "gpu_seconds", "eta_known", "eta_ms", "eta_missing", "eta_at_least", "eta_low_ms", "eta_high_ms", "eta_assumed")
    CAMPAIGN_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SYNTHETIC_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    RUNS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    RUNS_DONE_FIELD_NUMBER: _ClassVar[int]
    RUNS_FAILED_FIELD_NUMBER: _ClassVar[int]
    RESTING_FIELD_NUMBER: _ClassVar[int]
    RUNS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    SLICES_DONE_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    RUNS_NEXT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    OWNER_NAME_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    RUNS_PAUSED_FIELD_NUMBER: _ClassVar[int]
    RUNS_CANCELLED_FIELD_NUMBER: _ClassVar[int]
    GPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ETA_KNOWN_FIELD_NUMBER: _ClassVar[int]
    ETA_MS_FIELD_NUMBER: _ClassVar[int]
    ETA_MISSING_FIELD_NUMBER: _ClassVar[int]
    ETA_AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    ETA_LOW_MS_FIELD_NUMBER: _ClassVar[int]
    ETA_HIGH_MS_FIELD_NUMBER: _ClassVar[int]
    ETA_ASSUMED_FIELD_NUMBER: _ClassVar[int]
    campaign_id: str
    name: str
    synthetic: bool
    runs: _containers.RepeatedCompositeFieldContainer[RunStatus]
    failure: _common_pb2.Failure
    runs_total: int
    runs_done: int
    runs_failed: int
    resting: _containers.RepeatedCompositeFieldContainer[SlotRest]
    runs_running: int
    slices: int
    slices_done: int
    retries: int
    waiting: _containers.RepeatedCompositeFieldContainer[WaitingRuns]
    runs_next: int
    state: CampaignState
    owner: str
    owner_name: str
    project: str
    paused: bool
    runs_paused: int
    runs_cancelled: int
    gpu_seconds: float
    eta_known: bool
    eta_ms: int
    eta_missing: str
    eta_at_least: bool
    eta_low_ms: int
    eta_high_ms: int
    eta_assumed: bool
    def __init__(self, campaign_id: _Optional[str] = ..., name: _Optional[str] = ..., synthetic: _Optional[bool] = ..., runs: _Optional[_Iterable[_Union[RunStatus, _Mapping]]] = ..., failure: _Optional[_Union[_common_pb2.Failure, _Mapping]] = ..., runs_total: _Optional[int] = ..., runs_done: _Optional[int] = ..., runs_failed: _Optional[int] = ..., resting: _Optional[_Iterable[_Union[SlotRest, _Mapping]]] = ..., runs_running: _Optional[int] = ..., slices: _Optional[int] = ..., slices_done: _Optional[int] = ..., retries: _Optional[int] = ..., waiting: _Optional[_Iterable[_Union[WaitingRuns, _Mapping]]] = ..., runs_next: _Optional[int] = ..., state: _Optional[_Union[CampaignState, str]] = ..., owner: _Optional[str] = ..., owner_name: _Optional[str] = ..., project: _Optional[str] = ..., paused: _Optional[bool] = ..., runs_paused: _Optional[int] = ..., runs_cancelled: _Optional[int] = ..., gpu_seconds: _Optional[float] = ..., eta_known: _Optional[bool] = ..., eta_ms: _Optional[int] = ..., eta_missing: _Optional[str] = ..., eta_at_least: _Optional[bool] = ..., eta_low_ms: _Optional[int] = ..., eta_high_ms: _Optional[int] = ..., eta_assumed: _Optional[bool] = ...) -> None: ...

class GetRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class AttemptDetail(_message.Message):
    __slots__ = ("key", "agent", "slot", "leased_at_ms", "ended_at_ms", "launches", "failure", "command", "environment", "log", "telemetry_json", "wall_seconds", "facts_json", "state", "gang")
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KEY_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    LEASED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LAUNCHES_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    TELEMETRY_JSON_FIELD_NUMBER: _ClassVar[int]
    WALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FACTS_JSON_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    GANG_FIELD_NUMBER: _ClassVar[int]
    key: _common_pb2.AttemptKey
    agent: str
    slot: str
    leased_at_ms: int
    ended_at_ms: int
    launches: int
    failure: _common_pb2.Failure
    command: _containers.RepeatedScalarFieldContainer[str]
    environment: _containers.ScalarMap[str, str]
    log: str
    telemetry_json: str
    wall_seconds: float
    facts_json: str
    state: AttemptState
    gang: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, key: _Optional[_Union[_common_pb2.AttemptKey, _Mapping]] = ..., agent: _Optional[str] = ..., slot: _Optional[str] = ..., leased_at_ms: _Optional[int] = ..., ended_at_ms: _Optional[int] = ..., launches: _Optional[int] = ..., failure: _Optional[_Union[_common_pb2.Failure, _Mapping]] = ..., command: _Optional[_Iterable[str]] = ..., environment: _Optional[_Mapping[str, str]] = ..., log: _Optional[str] = ..., telemetry_json: _Optional[str] = ..., wall_seconds: _Optional[float] = ..., facts_json: _Optional[str] = ..., state: _Optional[_Union[AttemptState, str]] = ..., gang: _Optional[_Iterable[str]] = ...) -> None: ...

class RunDetail(_message.Message):
    __slots__ = ("run", "attempts", "files")
    RUN_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    run: RunStatus
    attempts: _containers.RepeatedCompositeFieldContainer[AttemptDetail]
    files: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, run: _Optional[_Union[RunStatus, _Mapping]] = ..., attempts: _Optional[_Iterable[_Union[AttemptDetail, _Mapping]]] = ..., files: _Optional[_Iterable[str]] = ...) -> None: ...

class GetReportRequest(_message.Message):
    __slots__ = ("campaign_id", "format")
    CAMPAIGN_ID_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    campaign_id: str
    format: ReportFormat
    def __init__(self, campaign_id: _Optional[str] = ..., format: _Optional[_Union[ReportFormat, str]] = ...) -> None: ...

class ReportChunk(_message.Message):
    __slots__ = ("data", "changed")
    DATA_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    changed: _containers.RepeatedCompositeFieldContainer[ChangedFile]
    def __init__(self, data: _Optional[bytes] = ..., changed: _Optional[_Iterable[_Union[ChangedFile, _Mapping]]] = ...) -> None: ...

class ChangedFile(_message.Message):
    __slots__ = ("run_id", "file", "what")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    file: str
    what: FileChange
    def __init__(self, run_id: _Optional[str] = ..., file: _Optional[str] = ..., what: _Optional[_Union[FileChange, str]] = ...) -> None: ...
