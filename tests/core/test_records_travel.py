"""What one program sends is what the other reads: every record, through its bytes on the wire."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from assay_core.identity.roles import IdentityKind, Role
from assay_core.records import (
    archive,
    attempt,
    campaign,
    identity,
    lab,
    lease,
    machine,
    runs,
    upload,
    work,
)
from assay_core.records.error_metadata import MOST_BYTES, MOST_DIFFERENCES, ErrorMetadata
from assay_core.records.failure import Failure, failure
from assay_core.records.validity_flag import ValidityFlag
from assay_core.records.wire import WireError, condition_from_proto, condition_to_proto
from assay_protos import agent_pb2, campaign_pb2, common_pb2
from assay_sampling import errors
from assay_sampling.running.failures import FailureClass
from assay_sampling.running.identity import Condition

KEY = attempt.AttemptKey("c-1.0000", 2, 3, 1 << 40)
CLAIM = attempt.Claim(KEY, "agent", "session", b"\x00secret")
WHY = Failure("of_a_newer_release", "the workload", "it did é", "do that", True)
FLAG = ValidityFlag("of_a_newer_release", "seen", True)
LOG = attempt.AttemptLog(("ncu", "-x"), {"A": "b"}, "said\n", '{"lost": true}', 2.5, '{"version": 1}')
DEVICE = machine.InstalledDevice(1, "V100", "GPU-1", "7.0", 80, 1 << 34, "cannot be asked", "hidden")
SLOT = machine.Slot("GPU-1", ("nsys", "ncu"), True, DEVICE, "XID 79", True, True, True)
INVENTORY = machine.Inventory("box", "0.1.0", 16, 1 << 36, (DEVICE,), "550", "12.4", "none")
BUNDLE = upload.Bundle("a" * 64, 3, 2)
PART = upload.BundlePart("a", 5, "b")
LAUNCHES_CURSOR = archive.LaunchesCursor(2, 1 << 40, "ab")
FOLDER = campaign.BundleFolder("./f", "w", 3)
COMMAND = work.CommandSource(("./a", "-n"), {"A": "1"}, "/w", 7.5, 1 << 30, "t.json", 4, BUNDLE, True)
SPEC: dict[str, Any] = {
    "campaign_id": "c-1", "workload": "w", "device_kind": "V100", "level": "bare", "profiler": "bare",
    "condition": Condition("all", "boost", 50.0, "partition"), "repeat": 2, "synthetic": True,
    "counters": ("instructions",), "under_mps": True,
}  # fmt: skip
RUN = campaign.RunStatus(
    run_id="c-1.0000", workload="w", device_kind="V100", level="detailed", condition=Condition(), repeat=1,
    state=campaign.RunState.FAILED, launches=9, attempts=3, flags=(FLAG,), failure=WHY, agent="box",
    waiting_for="a V100", slices=4, slices_done=2, retries=1, paused=True,
)  # fmt: skip
REST = campaign.SlotRest("box", "GPU-1", 3, 4000, WHY)
STATUS = campaign.CampaignStatus(
    campaign_id="c-1", name="c", state=campaign.CampaignState.ANALYSING, synthetic=True, failure=WHY,
    runs_total=5, runs_done=4, runs_failed=3, runs_running=2, slices=9, slices_done=8, retries=7,
    resting=(REST,), waiting=(campaign.WaitingRuns("a V100", "c-1.0000", 2, campaign.QueueKind.PAUSED),),
    runs=(RUN,), runs_next=6,
    owner="a1", owner_name="vera", project="vision", runs_cancelled=1, runs_paused=1, paused=True,
    gpu_seconds=2.5, eta=campaign.Estimate(True, 8, "no slice has ended", True, 4, 16, True),
)  # fmt: skip
CHANGED = campaign.ChangedFile("c-1.0000", "records/x", campaign.FileChange.UNREADABLE)
ASIDE = campaign.SetAside("/s", campaign.SetAsideReason.CHANGED, 5, 2, 9, ("a", "b"))
SPOOL = campaign.AgentSpool("box", 7, 9, waits=True, damaged=2)
SHORT = campaign.Shortage(1, 2, 3, 4)
RECORD_FILE = archive.RecordFile("c-1.0000", "w", 1, "c-1.0000/slice-00001.parquet", 5, "h", 6)
HEADER = upload.SegmentHeader(4, 10, 5, 6, b"n" * 32, b"l" * 32)
DETAIL = runs.AttemptDetail(
    key=KEY, state=campaign.AttemptState.EXPIRED, agent="box", slot="GPU-1", leased_at_ms=1, ended_at_ms=2,
    launches=3, failure=WHY, log=LOG, gang=("GPU-2",),
)  # fmt: skip

ISSUED = identity.Issued("abc", 1, 2, 3)
KNOWN = identity.KnownIdentity(
    "a" * 32, IdentityKind.PERSON, "alice", Role.VIEWER, "sim", ("l",), 1, 2, (ISSUED,)
)
OPEN_TOKEN = identity.OpenToken("t-1", Role.AGENT, "n", "p", ("l", "m"), 4, 5)
SAMPLE = machine.GpuSample("GPU-1", 5, 61.5, 210.0, 99.0, 1530.0)
LAB_SLOT = lab.LabSlot(SLOT, lab.SlotHealth.RESTING, "why", 5, "c-1.0000", 6, 7, 8, SAMPLE)
LAB_AGENT = lab.LabAgent("a", "box", INVENTORY, ("l",), True, 8, 9, (LAB_SLOT,))
QUEUED = lab.QueuedRuns(
    campaign_id="c-1", first_run_id="c-1.0000", device_kind="V100", profiler="ncu", runs=3,
    kind=lab.QueueKind.EXCLUSIVE, reason="why", ahead=("c-0",), runs_ahead=4,
    estimate=campaign.Estimate(True, 8, "no slice has ended", True, 4, 16, True), owner_name="vera",
    project="vision",
)  # fmt: skip
ASKED = runs.RunsRequest("c-1", "w", "c-1.0000", True)
ENTRY = lab.AuditEntry(1, 2, "i", "vera", "viewer", "socket", "unix:", "Cancel", "c-1", "done", "x")

RECORDS: list[Any] = [
    identity.JoinAsked(b"secret", b"request", "box", "a" * 32), identity.RenewalAsked(b"request"),
    identity.Joined(b"certificate", "box", Role.AGENT, 7170), identity.Renewed(b"certificate"),
    identity.TokenAsked(Role.ADMIN, "n", "p", ("l",), 2, 3), identity.NamedForRevocation("alice"),
    identity.TokenMade("token", "t-1", "f" * 64, 9, 7171), identity.Revoked("token", "t-1", "n"), ISSUED,
    KNOWN, OPEN_TOKEN, identity.IdentitiesAsked(), identity.Identities((KNOWN,), (OPEN_TOKEN,)),
    identity.WebLinkAsked(), identity.WebLink("https://lab:7180/login?link=x", 1_700_000_000_000),
    KEY, attempt.HeldAttempt(KEY, b"s"), LOG, WHY, FLAG, DEVICE, SLOT, replace(SLOT, device=None), INVENTORY,
    machine.Registration("a", "s", "n", INVENTORY, (SLOT,), (attempt.HeldAttempt(KEY, b"s"),), "place"),
    machine.Registered(5, 6, (KEY,), (KEY,), "0.1.0"), COMMAND,
    work.RecordedSource(Path("/data/x"), recorded_time=True),
    work.Work(key=KEY, launch_skip=1, launch_count=2, lease_remaining_ms=3, write_secret=b"s",
              gang=("GPU-2",), command=COMMAND, **SPEC),
    work.Work(key=KEY, recorded=work.RecordedSource(Path("/data/x")), **SPEC),
    lease.LeaseRequest("a", "s", "GPU-1"), lease.LeaseAnswer(None, register_again=True),
    lease.Heartbeat("a", "s", (lease.AttemptProgress(KEY, 8, b"s"),)),
    lease.Heartbeat("a", "s", (), lease.SpoolState(7, 9, waits=True, damaged=2), (SAMPLE,)), SAMPLE,
    lease.HeartbeatAnswer((KEY,), register_again=True), lease.FinishAnswer(published=True),
    lease.FinishedAttempt(CLAIM, 2, 20, (FLAG,), LOG), lease.FailedAttempt(CLAIM, WHY, LOG),
    upload.AnnouncedSegment(CLAIM, HEADER), upload.SegmentAnswer(KEY, 4, duplicate=True),
    upload.SegmentAnswer(KEY, 4, refusal=WHY),
    upload.BundlesNamed((BUNDLE,)), upload.BundlesMissing(("a",), (PART,)), PART,
    upload.BundleChunk(b"x", BUNDLE, 5), upload.BundleChunk(b"x"),
    upload.StoredBundle(BUNDLE, 1), upload.BundleWanted(CLAIM, "a"),
    archive.RecordsAsked("c-1", 2), archive.RecordsPage((RECORD_FILE,), 3), archive.RecordsChunk(b"x"),
    archive.RecordWanted("c-1", "c-1.0000", 1, 2),
    archive.LaunchesAsked("c-1", "c-1.0000", ("launch", "kernel_id"), LAUNCHES_CURSOR),
    archive.LaunchesPart(b"names", b"batch", LAUNCHES_CURSOR), LAUNCHES_CURSOR,
    campaign.Submission("campaign: c\n", "c.yaml", "/base", {"f": BUNDLE}), campaign.Submitted("c-1", 5),
    campaign.Submission("campaign: c\n", "c.yaml", "/base", asks_for_folders=True), FOLDER,
    campaign.Submitted("", 0, (FOLDER,)),
    campaign.CampaignsPage(1, 2), campaign.StatusRequest("c-1", 1, 2, without_runs=True),
    campaign.ReportRequest("c-1", campaign.ReportFormat.HTML), campaign.NamedCampaign("c-1"),
    runs.NamedRun("c-1.0000"), REST, ASIDE, CHANGED, RUN, STATUS,
    campaign.Overview((STATUS,), (REST,), (ASIDE,), (CHANGED,), 3, (SPOOL,), SHORT), DETAIL,
    archive.DeleteRequest("c-1", confirmed=True), archive.DeletedCampaign("c-1", 2, 3, 4),
    archive.ExportRequest("c-1"), archive.ArchiveChunk(b"x"), archive.ImportedCampaign("c-1", 2, 3, 4),
    runs.RunDetail(RUN, (DETAIL,), ("records/x",)), campaign.ReportChunk(b"data", (CHANGED,)),
    lab.AuditAsked(1, 2, "vera", 3), ENTRY, lab.AuditPage((ENTRY,), 7),
    lab.RoleSet("i", "vera", Role.VIEWER, "p"), lab.RoleChange("vera", Role.ADMIN),
    lab.RoleChange("vera", Role.ADMIN, ""),
    lab.BudgetsAsked("vera"), lab.BudgetChange("vera", 0.0), lab.BudgetChange("vera", None),
    lab.Budgets((lab.PersonBudget("i", "vera", Role.VIEWER, "p", None, 5.0, 0.25),), 30),
    lab.PersonBudget("i", "vera", Role.VIEWER, "p", 0.0, None, 0.0),
    LAB_SLOT, replace(LAB_SLOT, health=lab.SlotHealth.MAINTENANCE),
    lab.LabAgents((LAB_AGENT,)), lab.LabQueue((QUEUED,), 2), ASKED,
    runs.RunsAnswer(STATUS, 1, 2, 3),
]  # fmt: skip


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_as_it_was_sent(record: Any) -> None:
    message = record.to_proto()
    read = type(message).FromString(message.SerializeToString())
    assert type(record).from_proto(read) == record


def test_the_examples_leave_no_field_of_a_message_unsaid() -> None:
    """An example with a default would not notice a field that its conversion forgets."""
    for message in (
        STATUS.to_proto(),
        RUN.to_proto(),
        DEVICE.to_proto(),
        SLOT.to_proto(),
        LOG.to_proto(),
        COMMAND.to_proto(),
        RECORD_FILE.to_proto(),
        ENTRY.to_proto(),
        LAB_SLOT.to_proto(),
        LAB_AGENT.to_proto(),
        QUEUED.to_proto(),
        ASKED.to_proto(),
    ):
        assert {each.name for each, _ in message.ListFields()} == set(message.DESCRIPTOR.fields_by_name)


def test_what_a_tool_said_stays_in_its_process() -> None:
    told = failure(FailureClass.HANG, "run", tool_said="secret words")
    assert "secret" not in str(told.to_proto()) + json.dumps(told.to_dict())
    assert set(told.to_dict()) == {each.name for each in fields(Failure)} - {"tool_said"}


def test_a_class_that_only_another_release_knows_is_kept_and_treated_as_internal() -> None:
    read = Failure.from_proto(WHY.to_proto())
    assert (read.failure_class, read.known_class) == ("of_a_newer_release", FailureClass.INTERNAL)
    assert Failure.from_proto(common_pb2.Failure()).failure_class == "internal"


@pytest.mark.parametrize(
    "message",
    [
        agent_pb2.Work(key=KEY.to_proto()),
        agent_pb2.Work(key=KEY.to_proto(), run=agent_pb2.RunSpec(level=77)),
        agent_pb2.Work(key=common_pb2.AttemptKey(run_id="../x"), run=agent_pb2.RunSpec(level="LEVEL_LIGHT")),
    ],
    ids=["no level", "a level of another release", "a key that leads elsewhere"],
)
def test_work_that_cannot_be_read_names_the_thing_and_the_remedy(message: agent_pb2.Work) -> None:
    with pytest.raises(WireError, match=r"run .*: its .*; run the same release of Assay"):
        work.Work.from_proto(message)


def test_a_status_of_another_release_is_refused() -> None:
    with pytest.raises(
        WireError, match="c-1: its CampaignState has the number 0, which is not one of running"
    ):
        campaign.CampaignStatus.from_proto(campaign_pb2.CampaignStatus(campaign_id="c-1"))


def test_a_condition_that_is_not_recorded_stays_so() -> None:
    assert condition_from_proto(common_pb2.Condition(), "x") == Condition()
    assert condition_to_proto(Condition()).ListFields()[0][0].name == "sm_share"


def test_an_error_is_cut_to_what_metadata_hold_and_comes_back_as_its_kind() -> None:
    error = errors.MisalignedError("s" * 9_000, "é" * 9_000, "mend it", ("launch 3",))
    data = ErrorMetadata.of(error).encode()
    assert len(data) <= MOST_BYTES
    told = ErrorMetadata.decode(data)
    assert told is not None and type(told.error()) is errors.MisalignedError
    assert told.error().remedy == "mend it"


def test_the_differences_of_recordings_travel_as_a_list_of_bounded_length() -> None:
    error = errors.MisalignedError("a and b", "they differ", "record again", ("launch 3", "launch 5"))
    told = ErrorMetadata.decode(ErrorMetadata.of(error).encode())
    assert told is not None
    again = told.error()
    assert isinstance(again, errors.MisalignedError)
    assert (again.cause, again.differences) == ("they differ", ("launch 3", "launch 5"))
    assert (str(again), again.to_dict()) == (str(error), error.to_dict())
    many = errors.MisalignedError("a", "b", "c", tuple(f"{n}: " + "é" * 900 for n in range(1000)))
    data = ErrorMetadata.of(many).encode()
    cut = ErrorMetadata.decode(data)
    assert len(data) <= MOST_BYTES and cut is not None and len(cut.differences) == MOST_DIFFERENCES
    assert cut.differences[0].startswith("0: é")


def test_an_error_of_one_program_travels_as_the_nearest_kind_that_all_know() -> None:
    class Ours(errors.StorageError):
        """Known to nobody else."""

    assert ErrorMetadata.of(Ours("a", "b")).kind == "StorageError"
