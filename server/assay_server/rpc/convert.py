"""Between the wire's messages and the store's values, one function a thing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

from assay_protos import agent_pb2, campaign_pb2, common_pb2
from assay_sampling.attempt_facts import MOST_BYTES
from assay_sampling.errors import ParameterError
from assay_sampling.launch_table import Condition
from assay_sampling.validity import FLAGS, invalidates
from assay_server.analysis.intact import ChangedFile
from assay_server.campaigns.resting import NO_RESTS, Row
from assay_server.campaigns.schedule import Lease
from assay_server.store.model import (
    Agent,
    Attempt,
    AttemptKey,
    AttemptLog,
    AttemptState,
    Campaign,
    CampaignOverview,
    CampaignState,
    Claim,
    FailureRecord,
    Flag,
    RunOverview,
    RunState,
    Slot,
)
from assay_server.store.set_aside import SetAside

_LONGEST_LOG = 256 << 10
_LONGEST_TEXT = 4096
_MOST_ENTRIES = 1000
_MOST_NAMES = 20


def key_of(message: common_pb2.AttemptKey) -> AttemptKey:
    """The key that a message names."""
    return AttemptKey(message.run_id, message.slice, message.attempt, message.token)


def key_message(key: AttemptKey) -> common_pb2.AttemptKey:
    """A key as it travels."""
    return common_pb2.AttemptKey(run_id=key.run_id, slice=key.slice, attempt=key.attempt, token=key.token)


class WritesAttempt(Protocol):
    """A message that writes to an attempt, and names the secret of its lease."""

    @property
    def key(self) -> common_pb2.AttemptKey: ...

    @property
    def write_secret(self) -> bytes: ...


def claim_of(message: WritesAttempt, agent_id: str, session_id: str) -> Claim:
    """Who sends a message about an attempt, and what proves that it holds the lease."""
    return Claim(key_of(message.key), agent_id, session_id, message.write_secret)


def held_of(messages: Iterable[agent_pb2.HeldAttempt]) -> dict[AttemptKey, bytes]:
    """The attempts that an agent found on its disk, with the secrets of their leases."""
    return {key_of(message.key): message.write_secret for message in messages}


def failure_of(message: common_pb2.Failure) -> FailureRecord:
    """A failure from an agent, its texts bounded."""
    return FailureRecord(
        message.failure_class[:100] or "internal",
        message.subject[:_LONGEST_TEXT],
        message.cause[:_LONGEST_TEXT],
        message.remedy[:_LONGEST_TEXT],
        message.retryable,
    )


def failure_message(failure: FailureRecord) -> common_pb2.Failure:
    """A failure as it travels."""
    return common_pb2.Failure(
        failure_class=failure.failure_class,
        subject=failure.subject,
        cause=failure.cause,
        remedy=failure.remedy,
        retryable=failure.retryable,
    )


def flags_of(messages: Iterable[common_pb2.ValidityFlag]) -> tuple[Flag, ...]:
    """Validity flags from an agent, their texts bounded; what they mean says our registry, never the agent.

    One that the registry does not know, as of a newer agent, is kept and invalidates.
    """
    return tuple(
        Flag(m.name[:100], m.detail[:_LONGEST_TEXT], m.name not in FLAGS or invalidates(m.name))
        for m in list(messages)[:_MOST_ENTRIES]
    )


def flag_messages(flags: Iterable[Flag]) -> list[common_pb2.ValidityFlag]:
    """Validity flags as they travel."""
    return [
        common_pb2.ValidityFlag(name=flag.name, detail=flag.detail, invalidates=flag.invalidates)
        for flag in flags
    ]


def log_of(message: agent_pb2.AttemptLog) -> AttemptLog:
    """An attempt's log; of a text that is too long, the end."""
    environment = {
        name[:_LONGEST_TEXT]: message.environment[name][:_LONGEST_TEXT]
        for name in sorted(message.environment)[:_MOST_ENTRIES]
    }
    command = tuple(word[:_LONGEST_TEXT] for word in list(message.command)[:_MOST_ENTRIES])
    text = message.log
    if len(text) > _LONGEST_LOG:
        text = f"[the first {len(text) - _LONGEST_LOG:,} characters are left out]\n{text[-_LONGEST_LOG:]}"
    wall_seconds = message.wall_seconds if 0 <= message.wall_seconds < math.inf else 0.0
    telemetry, facts = _json_object(message.telemetry_json), _json_object(message.facts_json, MOST_BYTES)
    return AttemptLog(command, environment, text, telemetry, wall_seconds, facts)


def _json_object(text: str, longest: int = _LONGEST_LOG) -> str:
    """The text, or "" where it is no JSON object or too long to keep."""
    if len(text) > longest:
        return ""
    try:
        return text if isinstance(json.loads(text), dict) else ""
    except (ValueError, RecursionError):
        return ""


def agent_of(request: agent_pb2.RegisterRequest) -> Agent:
    """The agent that registers; raises ParameterError where what it says cannot be."""
    slots = tuple(slot_of(slot) for slot in request.slots)
    identifiers = {slot.slot_id for slot in slots}
    if not request.agent_id or not request.session_id or len(identifiers) != len(slots) or "" in identifiers:
        raise ParameterError(
            f"agent {request.name!r}",
            "its registration lacks an identifier, or names a slot twice",
            "run the same release of Assay on agent and server",
        )
    inventory = request.inventory
    return Agent(
        agent_id=request.agent_id,
        session_id=request.session_id,
        name=request.name or request.agent_id,
        inventory={
            "host": inventory.host,
            "agent_version": inventory.agent_version,
            "cpu_count": inventory.cpu_count,
            "memory_bytes": inventory.memory_bytes,
            "devices": [device_document(device) for device in inventory.devices],
            "driver_version": inventory.driver_version,
            "cuda_driver_version": inventory.cuda_driver_version,
            "no_device_reason": inventory.no_device_reason,
            "place": request.place[:_LONGEST_TEXT],
        },
        slots=slots,
        seen_at_ms=0,
    )


def slot_of(message: agent_pb2.Slot) -> Slot:
    """A slot as an agent registers it."""
    return Slot(
        message.slot_id,
        tuple(message.profilers),
        message.synthetic,
        device_document(message.device) if message.HasField("device") else {},
        message.quarantine_reason[:_LONGEST_TEXT],
        message.sm_partitions,
    )


def device_document(device: common_pb2.Device) -> dict[str, object]:
    """A device as the store keeps it."""
    return {
        "index": device.index,
        "name": device.name,
        "uuid": device.uuid,
        "compute_capability": device.compute_capability,
        "sm_count": device.sm_count,
        "memory_bytes": device.memory_bytes,
    }


def condition_message(condition: Condition) -> common_pb2.Condition:
    """A condition as it travels: what is not recorded is empty or zero."""
    return common_pb2.Condition(
        cache=condition.cache or "",
        clock=condition.clock or "",
        sm_percent=condition.sm_percent or 0.0,
        sm_share="" if condition.sm_share == "limit" else condition.sm_share,
    )


def work_message(lease: Lease, lease_ms: int) -> agent_pb2.Work:
    """What a slot is to run, with the milliseconds until its lease runs out."""
    run = lease.run
    recorded, command = None, None
    if run.command is None:
        recorded = agent_pb2.RecordedSource(path=run.recorded_path, recorded_time=run.recorded_time)
    else:
        command = agent_pb2.CommandSource(
            argv=run.command.argv,
            environment=run.command.environment,
            working_directory=run.command.working_directory,
            timeout_s=run.command.timeout_s,
            memory_limit_bytes=run.command.memory_limit_bytes,
            kineto_file=run.command.kineto_file,
        )
    return agent_pb2.Work(
        key=key_message(lease.attempt.key),
        run=agent_pb2.RunSpec(
            campaign_id=run.campaign_id,
            run_id=run.run_id,
            workload=run.workload,
            device_kind=run.device_kind,
            level=run.level,
            condition=condition_message(run.condition),
            repeat=run.repeat,
            synthetic=run.synthetic,
            profiler=run.profiler,
            recorded=recorded,
            command=command,
            counters=run.counters,
            under_mps=run.under_mps,
        ),
        launch_skip=lease.slice.launch_skip,
        launch_count=lease.slice.launch_count,
        deadline_ms=lease_ms,
        write_secret=lease.attempt.write_secret,
    )


def run_message(overview: RunOverview, waiting_for: str = "") -> campaign_pb2.RunStatus:
    """The status of a run; ``waiting_for`` is what it needs and no agent offers."""
    run = overview.run
    return campaign_pb2.RunStatus(
        run_id=run.run_id,
        workload=run.workload,
        device_kind=run.device_kind,
        level=run.level,
        condition=condition_message(run.condition),
        repeat=run.repeat,
        state=run.state,
        launches=overview.launches,
        attempts=overview.attempts,
        slices=overview.slices,
        slices_done=overview.slices_done,
        retries=overview.retries,
        flags=flag_messages(run.flags),
        failure=_optional_failure(run.failure),
        agent=overview.agent,
        waiting_for=waiting_for,
    )


def status_message(
    campaign: Campaign | CampaignOverview,
    counts: Mapping[RunState, int],
    overviews: Iterable[RunOverview] = (),
    waiting: Mapping[str, str] = MappingProxyType({}),
    resting: Row = NO_RESTS,
) -> campaign_pb2.CampaignStatus:
    """The status of a campaign with ``counts`` of its runs by state, and the runs of ``overviews``.

    ``waiting``: as in run_message, by run. ``resting``: all slots of the server that rest.
    """
    return campaign_pb2.CampaignStatus(
        campaign_id=campaign.campaign_id,
        name=campaign.name,
        state=campaign.state,
        synthetic=campaign.synthetic,
        runs=[run_message(overview, waiting.get(overview.run.run_id, "")) for overview in overviews],
        failure=_optional_failure(campaign.failure),
        runs_total=sum(counts.values()),
        runs_done=counts.get(RunState.DONE, 0),
        runs_failed=counts.get(RunState.FAILED, 0),
        runs_running=counts.get(RunState.RUNNING, 0),
        resting=rest_messages(resting) if campaign.state is CampaignState.RUNNING else (),
    )


def rest_messages(resting: Row) -> list[campaign_pb2.SlotRest]:
    """Slots that rest, as they travel."""
    return [
        campaign_pb2.SlotRest(
            agent=rest.agent_name,
            slot=rest.slot_id,
            failures=rest.failures,
            remaining_ms=max(0, rest.until_ms - resting.now_ms),
            failure=failure_message(rest.why),
        )
        for rest in resting.rests
    ]


def changed_messages(changed: Iterable[ChangedFile]) -> list[campaign_pb2.ChangedFile]:
    """Published files that are not what was published, as they travel."""
    return [campaign_pb2.ChangedFile(run_id=each.run_id, file=each.path, what=each.what) for each in changed]


def set_aside_message(moved: SetAside) -> campaign_pb2.SetAside:
    """What was set aside, for people, with its first names."""
    return campaign_pb2.SetAside(
        folder=moved.folder,
        reason=moved.reason,
        set_aside_at_ms=moved.set_aside_at_ms,
        files=len(moved.names),
        bytes=moved.file_bytes,
        names=moved.names[:_MOST_NAMES],
    )


def attempt_message(attempt: Attempt) -> campaign_pb2.AttemptDetail:
    """An attempt, for people."""
    # To people, an attempt that is being published is still under way.
    state = AttemptState.LEASED if attempt.state is AttemptState.PUBLISHING else attempt.state
    return campaign_pb2.AttemptDetail(
        key=key_message(attempt.key),
        state=state,
        agent=attempt.agent_name,
        slot=attempt.slot_id,
        leased_at_ms=attempt.leased_at_ms,
        ended_at_ms=attempt.ended_at_ms,
        launches=attempt.launches,
        failure=_optional_failure(attempt.failure),
        command=attempt.log.command,
        environment=attempt.log.environment,
        log=attempt.log.text,
        telemetry_json=attempt.log.telemetry,
        wall_seconds=attempt.log.wall_seconds,
        facts_json=attempt.log.facts,
    )


def _optional_failure(failure: FailureRecord | None) -> common_pb2.Failure | None:
    return None if failure is None else failure_message(failure)
