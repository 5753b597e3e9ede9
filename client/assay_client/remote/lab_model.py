"""The documents of ``assay lab agents``, ``gpus`` and ``queue`` and ``assay admin budget``, key by key."""

from __future__ import annotations

from typing import Annotated

from assay_core.identity.roles import Role
from assay_core.records.lab import QueueKind, SlotHealth
from assay_sampling.documents.base import Part, says


class SensorsEntry(Part):
    """Latest readings of a GPU's sensors: its telemetry during a run, else once a heartbeat."""

    temperature_celsius: Annotated[
        float | None, says("of its core; `null`, here and below: it does not report it", "°C")
    ]
    power_watts: Annotated[float | None, says("power draw", "W")]
    busy_percent: Annotated[
        float | None, says("share of the driver's last sampling period in which a kernel ran", "%")
    ]
    sm_clock_mhz: Annotated[float | None, says("clock of the SMs", "MHz")]
    age_seconds: Annotated[float, says("how long ago", "s")]


class SlotEntry(Part):
    """A slot of an agent: a GPU, or one that plays recordings."""

    slot: Annotated[str, says("its name, unique on its agent")]
    gpu: Annotated[str | None, says("name of its GPU; `null`: it plays recordings")]
    profilers: Annotated[list[str], says("profilers that it offers")]
    synthetic: Annotated[bool, says("its GPU is virtual: no silicon produces its data")]
    health: Annotated[SlotHealth, says("whether it takes runs")]
    why: Annotated[str, says("why it is not ready, for people; empty if it is")]
    rest_remaining_ms: Annotated[
        int, says("until it accepts runs again, while it rests after failures", "ms")
    ]
    run_id: Annotated[str | None, says("the run that it has; `null`: none, or one that you may not see")]
    slice: Annotated[int | None, says("slice of that run", "ordinal")]
    leased_at: Annotated[
        str | None, says("when it got the run, ISO 8601; also for runs that you may not see")
    ]
    maintenance_until: Annotated[
        str | None, says("end of the maintenance window that keeps new runs from it, ISO 8601")
    ]
    sensors: Annotated[SensorsEntry | None, says("latest readings of its sensors; `null`: none recently")]


class AgentEntry(Part):
    """An agent that the server knows."""

    agent_id: Annotated[str, says("its identity, 32 hexadecimal digits")]
    name: Annotated[str, says("what people call it")]
    host: Annotated[str, says("name of its box")]
    present: Annotated[bool, says("it sent a heartbeat recently")]
    seen_at: Annotated[str | None, says("its last heartbeat, ISO 8601")]
    since: Annotated[str | None, says("when its process registered, ISO 8601; `null`: not recorded")]
    labels: Annotated[list[str], says("labels of its join token, which campaigns may require")]
    agent_version: Annotated[str, says("release of assay-agent")]
    driver_version: Annotated[str, says("NVIDIA's driver; empty without one")]
    cuda_driver_version: Annotated[str, says("CUDA release of the driver; empty without one")]
    cpu_count: Annotated[int, says("logical processors", "processors")]
    memory_bytes: Annotated[int, says("memory of the box", "bytes")]
    no_device_reason: Annotated[str, says("why the box has no GPU; empty if it has")]
    slots: Annotated[list[SlotEntry], says("its slots")]


class AgentsDocument(Part):
    """``assay lab agents --json``."""

    agents: Annotated[list[AgentEntry], says("every agent that the server knows")]


class GpuEntry(Part):
    """A GPU of an agent."""

    agent: Annotated[str, says("name of its agent")]
    host: Annotated[str, says("name of its box")]
    uuid: Annotated[str, says("NVIDIA's identity of the GPU")]
    name: Annotated[str, says("product name")]
    compute_capability: Annotated[str | None, says("as `8.6`; `null`: not known")]
    sm_count: Annotated[int | None, says("streaming multiprocessors; `null`: not known", "SMs")]
    memory_bytes: Annotated[int | None, says("memory of the GPU; `null`: not known", "bytes")]
    driver_version: Annotated[str, says("NVIDIA's driver")]
    labels: Annotated[list[str], says("labels of its agent")]
    synthetic: Annotated[bool, says("it is virtual: no silicon produces its data")]
    profilers: Annotated[list[str], says("profilers that it is offered with")]
    health: Annotated[SlotHealth | None, says("whether it takes runs; `null`: it is not offered at all")]
    why: Annotated[str, says("why it is not ready or not offered, for people")]
    rest_remaining_ms: Annotated[
        int, says("until it accepts runs again, while it rests after failures", "ms")
    ]
    run_id: Annotated[str | None, says("the run that it has; `null`: none, or one that you may not see")]
    slice: Annotated[int | None, says("slice of that run", "ordinal")]
    leased_at: Annotated[
        str | None, says("when it got the run, ISO 8601; also for runs that you may not see")
    ]
    maintenance_until: Annotated[
        str | None, says("end of the maintenance window that keeps new runs from it, ISO 8601")
    ]
    sensors: Annotated[SensorsEntry | None, says("latest readings of its sensors; `null`: none recently")]


class GpusDocument(Part):
    """``assay lab gpus --json``."""

    gpus: Annotated[list[GpuEntry], says("every GPU of every agent")]


class EstimateEntry(Part):
    """How long work takes yet, from the times of finished slices."""

    remaining_ms: Annotated[int | None, says("until it is done; `null`: no estimate yet", "ms")]
    low_ms: Annotated[int | None, says("at least so long, of the interval that it is in", "ms")]
    high_ms: Annotated[int | None, says("at most so long", "ms")]
    assumed: Annotated[bool, says("in part from other GPUs, earlier campaigns or the assumptions of plans")]
    at_least: Annotated[bool, says("more slices may be cut while it runs")]
    missing: Annotated[str | None, says("what is missing for an estimate, for people")]


class QueuedEntry(Part):
    """Waiting runs of a campaign with the same requirements."""

    campaign_id: Annotated[str | None, says("`null`: a campaign that you may not see")]
    owner_name: Annotated[str, says("whose it is; empty if you may not see it, or nobody's")]
    project: Annotated[str, says("its project")]
    first_run_id: Annotated[str | None, says("the first of these runs")]
    runs: Annotated[int, says("how many wait", "runs")]
    device_kind: Annotated[str, says("the kind of GPU that they need")]
    profiler: Annotated[str, says("the profiler that they need")]
    kind: Annotated[QueueKind, says("why they wait")]
    reason: Annotated[str, says("the same for people")]
    ahead: Annotated[list[str | None], says("campaigns ahead for the same slots, the next one first")]
    runs_ahead: Annotated[int, says("their waiting runs", "runs")]
    eta: Annotated[EstimateEntry, says("until these runs are done")]


class QueueDocument(Part):
    """``assay lab queue --json``."""

    queue: Annotated[
        list[QueuedEntry], says("waiting runs of all running campaigns, in the campaigns' order")
    ]
    campaigns_left_out: Annotated[int, says("younger campaigns, if there are too many", "campaigns")]


class BudgetEntry(Part):
    """A person's budget and use."""

    identity_id: Annotated[str, says("identity, 32 hexadecimal digits")]
    name: Annotated[str, says("name")]
    role: Annotated[Role, says("role")]
    project: Annotated[str, says("project; empty: none")]
    own_gpu_hours: Annotated[float | None, says("their own budget; `null`: none", "GPU hours")]
    gpu_hours: Annotated[float | None, says("the budget that applies; `null`: no limit", "GPU hours")]
    used_gpu_hours: Annotated[float, says("used within the days of the budget", "GPU hours")]
    left_gpu_hours: Annotated[float | None, says("what is left of it; `null`: no limit", "GPU hours")]


class BudgetsDocument(Part):
    """``assay admin budget --json``."""

    people: Annotated[list[BudgetEntry], says("the people you may see, by name")]
    days: Annotated[int, says("budgets count the GPU time of so many days", "days")]
