from assay_protos import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Inventory(_message.Message):
    __slots__ = ("host", "agent_version", "cpu_count", "memory_bytes", "devices", "driver_version", "cuda_driver_version", "no_device_reason")
    HOST_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    CPU_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    DRIVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    CUDA_DRIVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    NO_DEVICE_REASON_FIELD_NUMBER: _ClassVar[int]
    host: str
    agent_version: str
    cpu_count: int
    memory_bytes: int
    devices: _containers.RepeatedCompositeFieldContainer[_common_pb2.Device]
    driver_version: str
    cuda_driver_version: str
    no_device_reason: str
    def __init__(self, host: _Optional[str] = ..., agent_version: _Optional[str] = ..., cpu_count: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., devices: _Optional[_Iterable[_Union[_common_pb2.Device, _Mapping]]] = ..., driver_version: _Optional[str] = ..., cuda_driver_version: _Optional[str] = ..., no_device_reason: _Optional[str] = ...) -> None: ...

class Slot(_message.Message):
    __slots__ = ("slot_id", "device", "profilers", "synthetic", "quarantine_reason", "sm_partitions", "gangs", "bundles")
    SLOT_ID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    PROFILERS_FIELD_NUMBER: _ClassVar[int]
    SYNTHETIC_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_REASON_FIELD_NUMBER: _ClassVar[int]
    SM_PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    GANGS_FIELD_NUMBER: _ClassVar[int]
    BUNDLES_FIELD_NUMBER: _ClassVar[int]
    slot_id: str
    device: _common_pb2.Device
    profilers: _containers.RepeatedScalarFieldContainer[str]
    synthetic: bool
    quarantine_reason: str
    sm_partitions: bool
    gangs: bool
    bundles: bool
    def __init__(self, slot_id: _Optional[str] = ..., device: _Optional[_Union[_common_pb2.Device, _Mapping]] = ..., profilers: _Optional[_Iterable[str]] = ..., synthetic: _Optional[bool] = ..., quarantine_reason: _Optional[str] = ..., sm_partitions: _Optional[bool] = ..., gangs: _Optional[bool] = ..., bundles: _Optional[bool] = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("agent_id", "session_id", "name", "inventory", "slots", "held", "place")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INVENTORY_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    session_id: str
    name: str
    inventory: Inventory
    slots: _containers.RepeatedCompositeFieldContainer[Slot]
    held: _containers.RepeatedCompositeFieldContainer[HeldAttempt]
    place: str
    def __init__(self, agent_id: _Optional[str] = ..., session_id: _Optional[str] = ..., name: _Optional[str] = ..., inventory: _Optional[_Union[Inventory, _Mapping]] = ..., slots: _Optional[_Iterable[_Union[Slot, _Mapping]]] = ..., held: _Optional[_Iterable[_Union[HeldAttempt, _Mapping]]] = ..., place: _Optional[str] = ...) -> None: ...

class HeldAttempt(_message.Message):
    __slots__ = ("key", "write_secret")
    KEY_FIELD_NUMBER: _ClassVar[int]
    WRITE_SECRET_FIELD_NUMBER: _ClassVar[int]
    key: _common_pb2.AttemptKey
    write_secret: bytes
    def __init__(self, key: _Optional[_Union[_common_pb2.AttemptKey, _Mapping]] = ..., write_secret: _Optional[bytes] = ...) -> None: ...

class RegisterResponse(_message.Message):
    __slots__ = ("heartbeat_ms", "lease_ms", "resume", "drop", "server_version", "idle_heartbeat_ms")
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    SERVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    IDLE_HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    heartbeat_ms: int
    lease_ms: int
    resume: _containers.RepeatedCompositeFieldContainer[_common_pb2.AttemptKey]
    drop: _containers.RepeatedCompositeFieldContainer[_common_pb2.AttemptKey]
    server_version: str
    idle_heartbeat_ms: int
    def __init__(self, heartbeat_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ..., resume: _Optional[_Iterable[_Union[_common_pb2.AttemptKey, _Mapping]]] = ..., drop: _Optional[_Iterable[_Union[_common_pb2.AttemptKey, _Mapping]]] = ..., server_version: _Optional[str] = ..., idle_heartbeat_ms: _Optional[int] = ...) -> None: ...

class AttemptProgress(_message.Message):
    __slots__ = ("key", "launches_spooled", "write_secret")
    KEY_FIELD_NUMBER: _ClassVar[int]
    LAUNCHES_SPOOLED_FIELD_NUMBER: _ClassVar[int]
    WRITE_SECRET_FIELD_NUMBER: _ClassVar[int]
    key: _common_pb2.AttemptKey
    launches_spooled: int
    write_secret: bytes
    def __init__(self, key: _Optional[_Union[_common_pb2.AttemptKey, _Mapping]] = ..., launches_spooled: _Optional[int] = ..., write_secret: _Optional[bytes] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("agent_id", "session_id", "attempts", "spool", "gpus")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    SPOOL_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    session_id: str
    attempts: _containers.RepeatedCompositeFieldContainer[AttemptProgress]
    spool: SpoolState
    gpus: _containers.RepeatedCompositeFieldContainer[GpuSample]
    def __init__(self, agent_id: _Optional[str] = ..., session_id: _Optional[str] = ..., attempts: _Optional[_Iterable[_Union[AttemptProgress, _Mapping]]] = ..., spool: _Optional[_Union[SpoolState, _Mapping]] = ..., gpus: _Optional[_Iterable[_Union[GpuSample, _Mapping]]] = ...) -> None: ...

class GpuSample(_message.Message):
    __slots__ = ("slot_id", "age_ms", "temperature_celsius", "power_watts", "busy_percent", "sm_clock_mhz")
    SLOT_ID_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_CELSIUS_FIELD_NUMBER: _ClassVar[int]
    POWER_WATTS_FIELD_NUMBER: _ClassVar[int]
    BUSY_PERCENT_FIELD_NUMBER: _ClassVar[int]
    SM_CLOCK_MHZ_FIELD_NUMBER: _ClassVar[int]
    slot_id: str
    age_ms: int
    temperature_celsius: float
    power_watts: float
    busy_percent: float
    sm_clock_mhz: float
    def __init__(self, slot_id: _Optional[str] = ..., age_ms: _Optional[int] = ..., temperature_celsius: _Optional[float] = ..., power_watts: _Optional[float] = ..., busy_percent: _Optional[float] = ..., sm_clock_mhz: _Optional[float] = ...) -> None: ...

class SpoolState(_message.Message):
    __slots__ = ("used_bytes", "limit_bytes", "waits", "damaged")
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    used_bytes: int
    limit_bytes: int
    waits: bool
    damaged: int
    def __init__(self, used_bytes: _Optional[int] = ..., limit_bytes: _Optional[int] = ..., waits: _Optional[bool] = ..., damaged: _Optional[int] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("drop", "register_again")
    DROP_FIELD_NUMBER: _ClassVar[int]
    REGISTER_AGAIN_FIELD_NUMBER: _ClassVar[int]
    drop: _containers.RepeatedCompositeFieldContainer[_common_pb2.AttemptKey]
    register_again: bool
    def __init__(self, drop: _Optional[_Iterable[_Union[_common_pb2.AttemptKey, _Mapping]]] = ..., register_again: _Optional[bool] = ...) -> None: ...

class RecordedSource(_message.Message):
    __slots__ = ("path", "recorded_time")
    PATH_FIELD_NUMBER: _ClassVar[int]
    RECORDED_TIME_FIELD_NUMBER: _ClassVar[int]
    path: str
    recorded_time: bool
    def __init__(self, path: _Optional[str] = ..., recorded_time: _Optional[bool] = ...) -> None: ...

class CommandSource(_message.Message):
    __slots__ = ("argv", "environment", "working_directory", "timeout_s", "memory_limit_bytes", "kineto_file", "bundle", "processes", "operations", "light_limit_s")
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ARGV_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    WORKING_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    KINETO_FILE_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    LIGHT_LIMIT_S_FIELD_NUMBER: _ClassVar[int]
    argv: _containers.RepeatedScalarFieldContainer[str]
    environment: _containers.ScalarMap[str, str]
    working_directory: str
    timeout_s: float
    memory_limit_bytes: int
    kineto_file: str
    bundle: _common_pb2.Bundle
    processes: int
    operations: bool
    light_limit_s: int
    def __init__(self, argv: _Optional[_Iterable[str]] = ..., environment: _Optional[_Mapping[str, str]] = ..., working_directory: _Optional[str] = ..., timeout_s: _Optional[float] = ..., memory_limit_bytes: _Optional[int] = ..., kineto_file: _Optional[str] = ..., bundle: _Optional[_Union[_common_pb2.Bundle, _Mapping]] = ..., processes: _Optional[int] = ..., operations: _Optional[bool] = ..., light_limit_s: _Optional[int] = ...) -> None: ...

class RunSpec(_message.Message):
    __slots__ = ("campaign_id", "run_id", "workload", "device_kind", "condition", "repeat", "synthetic", "profiler", "recorded", "command", "counters", "under_mps", "level")
    CAMPAIGN_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    DEVICE_KIND_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    REPEAT_FIELD_NUMBER: _ClassVar[int]
    SYNTHETIC_FIELD_NUMBER: _ClassVar[int]
    PROFILER_FIELD_NUMBER: _ClassVar[int]
    RECORDED_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    UNDER_MPS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    campaign_id: str
    run_id: str
    workload: str
    device_kind: str
    condition: _common_pb2.Condition
    repeat: int
    synthetic: bool
    profiler: str
    recorded: RecordedSource
    command: CommandSource
    counters: _containers.RepeatedScalarFieldContainer[str]
    under_mps: bool
    level: _common_pb2.Level
    def __init__(self, campaign_id: _Optional[str] = ..., run_id: _Optional[str] = ..., workload: _Optional[str] = ..., device_kind: _Optional[str] = ..., condition: _Optional[_Union[_common_pb2.Condition, _Mapping]] = ..., repeat: _Optional[int] = ..., synthetic: _Optional[bool] = ..., profiler: _Optional[str] = ..., recorded: _Optional[_Union[RecordedSource, _Mapping]] = ..., command: _Optional[_Union[CommandSource, _Mapping]] = ..., counters: _Optional[_Iterable[str]] = ..., under_mps: _Optional[bool] = ..., level: _Optional[_Union[_common_pb2.Level, str]] = ...) -> None: ...

class Work(_message.Message):
    __slots__ = ("key", "run", "launch_skip", "launch_count", "lease_remaining_ms", "write_secret", "gang")
    KEY_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_SKIP_FIELD_NUMBER: _ClassVar[int]
    LAUNCH_COUNT_FIELD_NUMBER: _ClassVar[int]
    LEASE_REMAINING_MS_FIELD_NUMBER: _ClassVar[int]
    WRITE_SECRET_FIELD_NUMBER: _ClassVar[int]
    GANG_FIELD_NUMBER: _ClassVar[int]
    key: _common_pb2.AttemptKey
    run: RunSpec
    launch_skip: int
    launch_count: int
    lease_remaining_ms: int
    write_secret: bytes
    gang: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, key: _Optional[_Union[_common_pb2.AttemptKey, _Mapping]] = ..., run: _Optional[_Union[RunSpec, _Mapping]] = ..., launch_skip: _Optional[int] = ..., launch_count: _Optional[int] = ..., lease_remaining_ms: _Optional[int] = ..., write_secret: _Optional[bytes] = ..., gang: _Optional[_Iterable[str]] = ...) -> None: ...

class LeaseRequest(_message.Message):
    __slots__ = ("agent_id", "session_id", "slot_id")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    SLOT_ID_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    session_id: str
    slot_id: str
    def __init__(self, agent_id: _Optional[str] = ..., session_id: _Optional[str] = ..., slot_id: _Optional[str] = ...) -> None: ...

class LeaseResponse(_message.Message):
    __slots__ = ("work", "register_again")
    WORK_FIELD_NUMBER: _ClassVar[int]
    REGISTER_AGAIN_FIELD_NUMBER: _ClassVar[int]
    work: Work
    register_again: bool
    def __init__(self, work: _Optional[_Union[Work, _Mapping]] = ..., register_again: _Optional[bool] = ...) -> None: ...

class AttemptLog(_message.Message):
    __slots__ = ("command", "environment", "log", "telemetry_json", "wall_seconds", "facts_json")
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    TELEMETRY_JSON_FIELD_NUMBER: _ClassVar[int]
    WALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FACTS_JSON_FIELD_NUMBER: _ClassVar[int]
    command: _containers.RepeatedScalarFieldContainer[str]
    environment: _containers.ScalarMap[str, str]
    log: str
    telemetry_json: str
    wall_seconds: float
    facts_json: str
    def __init__(self, command: _Optional[_Iterable[str]] = ..., environment: _Optional[_Mapping[str, str]] = ..., log: _Optional[str] = ..., telemetry_json: _Optional[str] = ..., wall_seconds: _Optional[float] = ..., facts_json: _Optional[str] = ...) -> None: ...

class FinishAttemptRequest(_message.Message):
    __slots__ = ("agent_id", "key", "segments", "launches", "flags", "log", "session_id", "write_secret")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    LAUNCHES_FIELD_NUMBER: _ClassVar[int]
    FLAGS_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    WRITE_SECRET_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    key: _common_pb2.AttemptKey
    segments: int
    launches: int
    flags: _containers.RepeatedCompositeFieldContainer[_common_pb2.ValidityFlag]
    log: AttemptLog
    session_id: str
    write_secret: bytes
    def __init__(self, agent_id: _Optional[str] = ..., key: _Optional[_Union[_common_pb2.AttemptKey, _Mapping]] = ..., segments: _Optional[int] = ..., launches: _Optional[int] = ..., flags: _Optional[_Iterable[_Union[_common_pb2.ValidityFlag, _Mapping]]] = ..., log: _Optional[_Union[AttemptLog, _Mapping]] = ..., session_id: _Optional[str] = ..., write_secret: _Optional[bytes] = ...) -> None: ...

class FinishAttemptResponse(_message.Message):
    __slots__ = ("published",)
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    published: bool
    def __init__(self, published: _Optional[bool] = ...) -> None: ...

class FailAttemptRequest(_message.Message):
    __slots__ = ("agent_id", "key", "failure", "log", "session_id", "write_secret")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    WRITE_SECRET_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    key: _common_pb2.AttemptKey
    failure: _common_pb2.Failure
    log: AttemptLog
    session_id: str
    write_secret: bytes
    def __init__(self, agent_id: _Optional[str] = ..., key: _Optional[_Union[_common_pb2.AttemptKey, _Mapping]] = ..., failure: _Optional[_Union[_common_pb2.Failure, _Mapping]] = ..., log: _Optional[_Union[AttemptLog, _Mapping]] = ..., session_id: _Optional[str] = ..., write_secret: _Optional[bytes] = ...) -> None: ...

class FailAttemptResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
