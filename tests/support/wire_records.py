"""One example, or several, of every record on the wire, as agents and clients send them; all made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

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
from assay_core.records.failure import Failure
from assay_core.records.validity_flag import ValidityFlag
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
COMMAND = work.CommandSource(("./a", "-n"), {"A": "1"}, "/w", 7.5, 1 << 30, "t.json", 4, BUNDLE, True, 600)
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
    identity.Left("5"), identity.WebLinkAsked(),
    identity.WebLink("https://lab:7180/login?link=x", 1_700_000_000_000),
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
