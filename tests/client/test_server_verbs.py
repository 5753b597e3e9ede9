"""Verbs that talk to a server, through the fake one: what they send, print and end with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from assay_protos import agent_pb2, campaign_pb2, common_pb2, lab_pb2
from tests.support.client.scripted_server import FakeServer, Refusal, Script, status
from tests.support.client.server_answers import FAILURE, REPORT, Assay, run_detail


@pytest.fixture(autouse=True)
def address(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ASSAY_SERVER", server.address)
    return server.address


def failed(state: str = "failed") -> campaign_pb2.CampaignStatus:
    """A campaign of two runs, the second of which failed."""
    found = status(state, 1, runs_failed=1)
    found.runs[1].state = campaign_pb2.RUN_STATE_FAILED
    found.runs[1].failure.CopyFrom(FAILURE)
    return found


def test_submit_prints_the_id_and_what_comes_next(assay: Assay, script: Script, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("campaign: c\n")
    ended = assay("lab", "submit", file)
    assert (ended.code, ended.stderr) == (0, "")
    assert "c-1: 2 runs" in ended.stdout
    assert "assay lab status c-1 --follow" in ended.stdout
    assert script.requests[0].base_directory == str(tmp_path)


def test_submit_json_has_the_id(assay: Assay, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("campaign: c\n")
    document = json.loads(assay("lab", "submit", tmp_path / "c.yaml", "--json").stdout)
    assert document == {"campaign_id": "c-1", "runs_total": 2, "warnings": []}


def test_a_campaign_that_the_server_refuses_is_told_in_its_words(
    assay: Assay, script: Script, tmp_path: Path
) -> None:
    def refuse(_: object) -> campaign_pb2.SubmitResponse:
        document = {
            "type": "CampaignError",
            "subject": "c.yaml:2: sede",
            "cause": "unknown key",
            "remedy": "say seed",
        }
        raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, "", document)

    script.submit = refuse
    (tmp_path / "c.yaml").write_text("campaign: c\nsede: 1\n")
    ended = assay("lab", "submit", tmp_path / "c.yaml")
    assert (ended.code, ended.stdout) == (4, "")
    assert ended.stderr == "error: c.yaml:2: sede: unknown key; say seed\n"


@pytest.mark.parametrize("content", [None, b"campaign: \xff\n"])
def test_a_campaign_file_that_cannot_be_read_is_a_campaign_error(
    assay: Assay, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "c.yaml").write_bytes(content)
    ended = assay("lab", "submit", tmp_path / "c.yaml")
    assert (ended.code, ended.stdout) == (4, "")
    assert str(tmp_path / "c.yaml") in ended.stderr


def test_status_lists_campaigns(assay: Assay) -> None:
    document = json.loads(assay("lab", "status", "--json").stdout)
    assert [c["campaign_id"] for c in document["campaigns"]] == ["c-1"]
    assert "runs" not in document["campaigns"][0]
    assert "c-1" in assay("lab", "status").stdout


def test_status_names_what_the_server_set_aside(assay: Assay, script: Script) -> None:
    assert json.loads(assay("lab", "status", "--json").stdout)["set_aside"] == []
    script.set_aside.append(
        campaign_pb2.SetAside(
            folder="/state/set-aside/2026-11-22T04-05-06Z-unknown_to_database",
            reason="SET_ASIDE_REASON_UNKNOWN_TO_DATABASE",
            set_aside_at_ms=1_795_320_306_000,
            files=3,
            bytes=9_000,
            names=["records/c-1.0000/slice-00000.parquet", "reports/c-1/report.json"],
        )
    )
    [told] = json.loads(assay("lab", "status", "--json").stdout)["set_aside"]
    assert told == {
        "folder": "/state/set-aside/2026-11-22T04-05-06Z-unknown_to_database",
        "reason": "unknown_to_database",
        "set_aside_at": "2026-11-22T04:05:06.000+00:00",
        "files": 3,
        "bytes": 9_000,
        "names": ["records/c-1.0000/slice-00000.parquet", "reports/c-1/report.json"],
    }
    assert assay("lab", "status").stdout.splitlines()[-1] == (
        "set aside in /state/set-aside/2026-11-22T04-05-06Z-unknown_to_database: 3 files "
        "(records/c-1.0000/slice-00000.parquet, reports/c-1/report.json and 1 more); the database does not "
        "know them: it may be a backup older than these files; look at them, then remove the folder"
    )


def test_slices_are_not_taken_for_retries(assay: Assay, script: Script) -> None:
    found = status("running", 1)
    for run, (slices, done, attempts, retries) in zip(found.runs, ((1, 1, 1, 0), (4, 2, 5, 2)), strict=True):
        run.slices, run.slices_done, run.attempts, run.retries = slices, done, attempts, retries
    found.runs[1].state = campaign_pb2.RUN_STATE_RUNNING
    script.status = lambda _: found
    script.watch = lambda _: iter([found, status("done", 2)])
    _, second = json.loads(assay("lab", "status", "c-1", "--json").stdout)["runs"]
    assert [second[name] for name in ("slices", "slices_done", "attempts", "retries")] == [4, 2, 5, 2]
    line = "c-1 running: 1 of 2 runs done, 1 running, 3 of 5 slices done, 2 retries"
    shown = assay("lab", "status", "c-1").stdout.splitlines()
    assert shown[0] == line
    assert "attempts" not in " ".join(shown)
    (row,) = (text for text in shown if "c-1.0001" in text)
    assert "2/4" in row
    assert assay("lab", "status", "--follow", "c-1").stderr.splitlines()[0] == line


def test_status_of_a_campaign_has_runs_flags_and_failures(assay: Assay, script: Script) -> None:
    found = failed()
    found.runs[0].flags.add(name="launches_dropped", detail="3 of 10", invalidates=True)
    found.runs[0].condition.CopyFrom(
        common_pb2.Condition(cache="CACHE_NONE", clock="CLOCK_NONE", sm_percent=100)
    )
    script.status = lambda _: found
    document = json.loads(assay("lab", "status", "c-1", "--json").stdout)
    assert document["state"] == "failed"
    assert document["runs_total"] == 2
    first, second = document["runs"]
    assert first["condition"] == {"cache": "none", "clock": "none", "sm_percent": 100.0}
    assert first["flags"] == [{"name": "launches_dropped", "detail": "3 of 10", "invalidates": True}]
    assert first["failure"] is None
    assert second["condition"] == {"cache": None, "clock": None, "sm_percent": None}
    assert second["failure"] == {
        "failure_class": "input_unreadable",
        "subject": "/data/cut.json.gz",
        "cause": "the file ends in the middle",
        "remedy": "copy it again",
        "retryable": False,
    }
    shown = assay("lab", "status", "c-1")
    assert shown.code == 0
    for text in ("launches_dropped", "input_unreadable", "copy it again", "cache=none clock=none sm=100%"):
        assert text in " ".join(shown.stdout.split()), text


def test_synthetic_campaigns_say_so(assay: Assay, script: Script) -> None:
    script.status = lambda _: status("running", synthetic=True)
    assert "synthetic" in assay("lab", "status", "c-1").stdout
    assert "synthetic" in assay("lab", "status").stdout
    assert json.loads(assay("lab", "status", "c-1", "--json").stdout)["synthetic"] is True


def test_cancel_shows_the_state_after(assay: Assay) -> None:
    assert json.loads(assay("lab", "cancel", "c-1", "--json").stdout)["state"] == "cancelled"
    assert "c-1 cancelled" in assay("lab", "cancel", "c-1").stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["lab", "pause", "c-1"],
            "c-1: 3 runs paused, 2 slices running, which finish first; resume with: assay lab resume",
        ),
        (["lab", "pause", "c-1", "--now"], "c-1: 3 runs paused, 1 attempt handed back, 2 slices running"),
        (["lab", "resume", "c-1", "--workload", "w"], "c-1: 3 runs resumed"),
        (["lab", "cancel", "c-1", "--run", "c-1.0001"], "c-1: 3 runs cancelled, 1 attempt stopped"),
        (["lab", "retry", "c-1"], "c-1: 3 runs re-queued; follow with: assay lab status c-1 --follow"),
    ],
)
def test_requests_about_runs_name_them_and_say_what_changed(
    assay: Assay, script: Script, words: list[str], told: str
) -> None:
    ended = int("--now" in words or words[1] == "cancel")
    script.status = lambda _: status("running", paused=words[1] == "pause")
    script.asked = lambda _: campaign_pb2.RunsAnswer(
        campaign=status("running"), runs_changed=3, attempts_ended=ended, attempts_running=2
    )
    shown = assay(*words)
    assert shown.code == 0
    assert shown.stdout.splitlines()[0].startswith(told)
    state = "running, paused" if words[1] == "pause" else "running"
    assert shown.stdout.splitlines()[1] == f"c-1 {state}: 0 of 2 runs done"
    asked = next(each for each in script.requests if isinstance(each, campaign_pb2.RunsRequest))
    given = dict(zip(words[3::2], words[4::2], strict=False))
    assert (asked.campaign_id, asked.workload, asked.run_id, asked.at_once) == (
        "c-1", given.get("--workload", ""), given.get("--run", ""), "--now" in words,
    )  # fmt: skip
    document = json.loads(assay(*words, "--json").stdout)
    assert document["request"] == {
        "action": words[1], "workload": given.get("--workload"), "run_id": given.get("--run"),
        "at_once": "--now" in words, "runs_changed": 3, "attempts_ended": ended, "attempts_running": 2,
    }  # fmt: skip
    assert (document["state"], document["paused"]) == ("running", words[1] == "pause")


def a_box() -> lab_pb2.LabAgents:
    """An agent with a GPU that rests, and one that is left out."""
    device = common_pb2.Device(
        name="NVIDIA V100", uuid="GPU-1", compute_capability="7.0", sm_count=80, memory_bytes=32 << 30
    )
    other = common_pb2.Device(name="Display", uuid="GPU-2", left_out="by --gpus")
    slot = lab_pb2.LabSlot(
        slot=agent_pb2.Slot(slot_id="GPU-1", device=device, profilers=["nsight_systems"]),
        health=lab_pb2.SLOT_HEALTH_RESTING, why="the disk is full [disk_full]", rest_remaining_ms=4000,
        run_id="c-1.0000", slice=2, leased_at_ms=1_000,
    )  # fmt: skip
    inventory = agent_pb2.Inventory(
        host="h", agent_version="1", driver_version="550.1", devices=[device, other]
    )
    agent = lab_pb2.LabAgent(
        agent_id="a", name="box", inventory=inventory, labels=["fast"], present=True, seen_at_ms=2_000,
        since_ms=1_000, slots=[slot],
    )  # fmt: skip
    return lab_pb2.LabAgents(agents=[agent])


def test_agents_and_gpus_say_what_each_slot_is_and_does(assay: Assay, script: Script) -> None:
    assert "no agent has registered" in assay("lab", "agents").stdout
    assert assay("lab", "gpus").stdout == "no agent has a GPU\n"
    script.agents = a_box()
    [agent] = json.loads(assay("lab", "agents", "--json").stdout)["agents"]
    assert (agent["since"], agent["labels"], agent["present"]) == (
        "1970-01-01T00:00:01.000+00:00",
        ["fast"],
        True,
    )
    state = {
        "health": "resting", "why": "the disk is full [disk_full]", "rest_remaining_ms": 4000,
        "run_id": "c-1.0000", "slice": 2, "leased_at": "1970-01-01T00:00:01.000+00:00",
    }  # fmt: skip
    first, second = json.loads(assay("lab", "gpus", "--json").stdout)["gpus"]
    assert state.items() <= agent["slots"][0].items() and state.items() <= first.items()
    assert (first["compute_capability"], first["sm_count"], first["memory_bytes"]) == ("7.0", 80, 32 << 30)
    assert (second["health"], second["why"], second["sm_count"]) == (None, "by --gpus", None)
    for verb, texts in (
        ("agents", ("box", "c-1.0000", "disk_full")),
        ("gpus", ("7.0", "80", "32", "left out")),
    ):
        shown = assay("lab", verb).stdout
        assert all(text in shown for text in texts), shown


def test_queue_says_why_who_is_ahead_and_until_when(assay: Assay, script: Script) -> None:
    assert assay("lab", "queue").stdout == "no run waits\n"
    queued = lab_pb2.QueuedRuns(
        campaign_id="c-2", first_run_id="c-2.0004", device_kind="V100", profiler="nsight_systems", runs=3,
        kind=lab_pb2.WAIT_KIND_QUEUED, reason="all 2 slots for it run something else", ahead=["c-1"],
        runs_ahead=7, estimate=lab_pb2.Estimate(known=True, remaining_ms=3_900_000), owner_name="ada",
    )  # fmt: skip
    later = lab_pb2.QueuedRuns(
        campaign_id="c-3", first_run_id="c-3.0000", device_kind="V100", profiler="nsight_systems", runs=1,
        kind=lab_pb2.WAIT_KIND_PAUSED, reason="it is paused",
        estimate=lab_pb2.Estimate(missing="it is held"),
    )  # fmt: skip
    script.queue = lab_pb2.LabQueue(queued=[queued, later], campaigns_left_out=1)
    assert assay("lab", "queue").stdout.splitlines() == [
        "c-2 of ada: 3 runs for V100, from c-2.0004",
        "  waiting: all 2 slots for it run something else",
        "  ahead: c-1 (7 runs)",
        "  done in: 1 h 05 min",
        "c-3: 1 run for V100, from c-3.0000",
        "  waiting: it is paused",
        "  done in: no estimate yet (it is held)",
        "1 younger campaign not shown",
    ]
    first, second = json.loads(assay("lab", "queue", "--json").stdout)["queue"]
    assert (first["kind"], first["ahead"], first["runs_ahead"]) == ("queued", ["c-1"], 7)
    assert first["eta"] == {
        "remaining_ms": 3_900_000,
        "low_ms": 0,
        "high_ms": 0,
        "assumed": False,
        "at_least": False,
        "missing": None,
    }
    assert second["eta"]["missing"] == "it is held"


def test_runs_of_campaigns_that_one_may_not_know_of_have_no_names(assay: Assay, script: Script) -> None:
    estimate = lab_pb2.Estimate(missing="it is held")
    hidden = lab_pb2.QueuedRuns(
        device_kind="V100", runs=3, kind=lab_pb2.WAIT_KIND_QUEUED, reason="it is of another project",
        estimate=estimate,
    )  # fmt: skip
    mine = lab_pb2.QueuedRuns(
        campaign_id="c-2", first_run_id="c-2.0000", device_kind="V100", runs=1, kind=lab_pb2.WAIT_KIND_QUEUED,
        reason="others are ahead", ahead=["", "c-1"], runs_ahead=4, estimate=estimate,
    )  # fmt: skip
    script.queue = lab_pb2.LabQueue(queued=[hidden, mine])
    shown = assay("lab", "queue").stdout.splitlines()
    assert (shown[0], shown[5]) == (
        "another project's: 3 runs for V100",
        "  ahead: another project's, c-1 (4 runs)",
    )
    first, second = json.loads(assay("lab", "queue", "--json").stdout)["queue"]
    assert (first["campaign_id"], first["first_run_id"], second["ahead"]) == (None, None, [None, "c-1"])
    script.agents = a_box()
    script.agents.agents[0].slots[0].run_id = ""
    for verb in ("agents", "gpus"):
        assert "another project's" in assay("lab", verb).stdout
    [agent] = json.loads(assay("lab", "agents", "--json").stdout)["agents"]
    assert agent["slots"][0]["run_id"] is None and agent["slots"][0]["leased_at"] is not None


def test_status_tells_gpu_hours_and_until_when(assay: Assay, script: Script) -> None:
    costly = {"gpu_seconds": 7_200.0, "eta_known": True, "eta_ms": 90_000, "eta_at_least": True}
    script.status = lambda _: status("running", **costly)
    assert assay("lab", "status", "c-1").stdout.startswith(
        "c-1 running: 0 of 2 runs done, 2.0 GPU hours, done in at least 2 min\n"
    )
    document = json.loads(assay("lab", "status", "c-1", "--json").stdout)
    assert (document["gpu_hours"], document["eta"]) == (
        2.0, {"remaining_ms": 90_000, "low_ms": 0, "high_ms": 0, "assumed": False, "at_least": True,
              "missing": None},
    )  # fmt: skip


def test_watch_tells_every_change_on_standard_error_and_the_end_on_standard_output(
    assay: Assay, script: Script
) -> None:
    script.watch = lambda _: iter([status("running"), status("analysing", 2), status("done", 2)])
    ended = assay("lab", "status", "--follow", "c-1")
    assert ended.code == 0
    assert ended.stderr.splitlines() == [
        "c-1 running: 0 of 2 runs done",
        "c-1 analysing: 2 of 2 runs done",
        "c-1 done: 2 of 2 runs done",
    ]
    assert ended.stdout.startswith("c-1 done: 2 of 2 runs done")


def test_watch_says_what_runs_wait_for_when_that_changes(assay: Assay, script: Script) -> None:
    waits, goes_on = status("running"), status("running", 1)
    for run in waits.runs:
        run.waiting_for = "no agent offers a measured V100 with nsight_compute; they have no GPU"
    script.watch = lambda _: iter([waits, waits, goes_on, status("done", 2)])
    assert assay("lab", "status", "--follow", "c-1").stderr.splitlines() == [
        "c-1 running: 0 of 2 runs done",
        "c-1.0000 and 1 more waiting: no agent offers a measured V100 with nsight_compute; they have no GPU",
        "c-1 running: 1 of 2 runs done",
        "c-1 done: 2 of 2 runs done",
    ]


def test_watch_json_is_one_document_and_no_progress(assay: Assay, script: Script) -> None:
    script.watch = lambda _: iter([status("running"), status("done", 2)])
    ended = assay("lab", "status", "--follow", "c-1", "--json")
    assert (ended.code, ended.stderr) == (0, "")
    assert json.loads(ended.stdout)["state"] == "done"


def test_watch_of_a_failed_run_ends_with_6_and_its_classified_cause(assay: Assay, script: Script) -> None:
    script.watch = lambda _: iter([failed()])
    ended = assay("lab", "status", "--follow", "c-1", "--json")
    assert ended.code == 6
    assert json.loads(ended.stdout)["state"] == "failed"
    error = json.loads(ended.stderr)["error"]
    assert error["type"] == "RunFailedError"
    assert error["subject"] == "run c-1.0001"
    assert error["cause"] == "the file ends in the middle [input_unreadable]"
    assert error["remedy"] == "copy it again"


def test_watch_of_a_cancelled_campaign_ends_with_6(assay: Assay, script: Script) -> None:
    script.watch = lambda _: iter([status("cancelled", 1)])
    ended = assay("lab", "status", "--follow", "c-1")
    assert ended.code == 6
    assert ended.stderr.endswith("error: campaign c-1: it was cancelled; submit it again to run it\n")


def test_an_explained_run_has_command_environment_log_and_files(assay: Assay, script: Script) -> None:
    script.run = lambda _: run_detail()
    document = json.loads(assay("explain", "c-1.0000", "--json").stdout)["run"]
    assert script.requests[0].run_id == "c-1.0000"
    assert document["run_id"] == "c-1.0000"
    assert document["files"] == ["c-1.0000/slice-00000.parquet"]
    attempt = document["attempts"][0]
    assert attempt["command"] == ["play", "a file.sqlite"]
    assert attempt["environment"] == {"HOME": "/root", "PATH": "/usr/bin"}
    assert attempt["log"] == "first line\nsecond \x1b[31mline"
    assert attempt["leased_at"] == "2023-11-14T22:13:20.000+00:00"
    assert attempt["ended_at"] is None
    shown = assay("explain", "c-1.0000").stdout
    for text in ("play 'a file.sqlite'", "PATH=/usr/bin", "first line", "input_unreadable", "box-1"):
        assert text in shown, text
    assert "\x1b" not in shown


def test_a_server_that_is_not_there_ends_with_5(assay: Assay, tmp_path: Path) -> None:
    free = f"unix:{tmp_path}/s"
    for verb in (
        ["lab", "status"],
        ["lab", "status", "c-1", "-f"],
        ["lab", "cancel", "c-1"],
        ["report", "c-1"],
        ["explain", "c-1.0000"],
    ):
        ended = assay(*verb, "--server", free)
        assert (ended.code, ended.stdout) == (5, "")
        assert ended.stderr == (
            f"error: {free}: no server answers there; "
            "start one with: assay-server --state DIR, or name another with --server\n"
        )


def test_runs_that_were_compared_stand_on_the_terminal(assay: Assay, script: Script) -> None:
    where = {"workload": "training", "device": "V100", "reason": "", "flags": [], "runs": [], "status": "ok"}
    baseline = {"cache": "none", "clock": "none", "sm_percent": 100.0}
    share = {
        **where, "condition": {**baseline, "sm_percent": 50.0}, "sm_percent": 50.0, "effective_sms": 40,
        "all_sms": 80, "speedup_true": 1.793,
        "match": {"percent": 99.5, "kind": "name_block", "between": "SM shares", "exact": 99.5,
                  "name_block": 99.5, "position": 99.5, "at_least": []},
        "predictions": [
            {"method": "pks", "selection": "training/pks", "speedup_predicted": 1.951,
             "speedup_error_percent": 8.81, "error_percent": 3.03},
            {"method": "random", "selection": "training/random", "status": "failed",
             "reason": "a representative has no counterpart"},
        ],
    }  # fmt: skip
    flushed = {
        **where, "condition": {**baseline, "cache": "all"}, "launches": 1000,
        "weighted_difference_percent": 21.25, "median_difference_percent": 12.5,
        "worst": {"process": 0, "launch": 17, "kernel": "gemm", "difference_percent": 51.75},
        "selections": [
            {"method": "pks", "selection": "training/pks", "weighted_difference_percent": 26.25},
        ],
        "flags": [{"run_id": "c-1.0004", "name": "units_assumed", "detail": "why"}],
    }  # fmt: skip
    noise = {**where, "condition": baseline, "level": "light", "under_mps": True, "repeats": 3,
             "relative_standard_deviation_percent": 0.75, "quantity": "duration_ns"}  # fmt: skip
    refused = {**share, "status": "refused", "reason": "no light run at 100 %", "predictions": [],
               "effective_sms": None, "speedup_true": None, "match": None}  # fmt: skip
    document = {**REPORT, "sm_share": [share, refused], "cold_start": [flushed], "noise": [noise]}
    script.report = lambda _, form: iter([json.dumps(document).encode()])
    shown = " ".join(assay("report", "c-1").stdout.split())
    for text in (
        "SM shares, condition cache=none clock=none sm=50%",
        "training V100 50 40 of 80 1.79 pks 1.95 8.81 3.03 99.5",
        "training V100 50 40 of 80 1.79 random - - - failed 99.5",
        "training V100 50 - - - - - - refused -",
        "training V100 1,000 21.25 12.50 51.75 17 gemm pks 26.25",
        "Noise over repeats, condition cache=none clock=none sm=100%, MPS",
        "training V100 light 3 0.75 duration_ns",
        "training on V100, SM share, random: a representative has no counterpart",
        "training on V100, SM share: no light run at 100 %",
        "run c-1.0004 is flagged units_assumed: why",
        "synthetic: no silicon produced these data",
    ):
        assert text in shown, text


@pytest.fixture
def with_report(script: Script) -> dict[str, bytes]:
    pages = {"json": json.dumps(REPORT).encode(), "html": "<html>größe</html>".encode()}
    script.report = lambda _, form: iter([pages[form]])
    return pages


@pytest.mark.parametrize("arguments", [["--json"], ["--format", "json"]])
def test_report_json_is_the_document(
    assay: Assay, with_report: dict[str, bytes], arguments: list[str]
) -> None:
    ended = assay("report", "c-1", *arguments)
    assert (ended.code, ended.stderr) == (0, "")
    assert json.loads(ended.stdout) == REPORT


def test_report_on_the_terminal_says_synthetic_and_what_failed(
    assay: Assay, with_report: dict[str, bytes]
) -> None:
    shown = assay("report", "c-1").stdout
    assert "synthetic: no silicon produced these data" in shown
    assert (
        "run c-1.0001 (training on V100, detailed, cache=none clock=none sm=100%) has no data: "
        "the file ends in the middle"
    ) in " ".join(shown.split())


def test_report_html_goes_to_standard_output_as_it_is(assay: Assay, with_report: dict[str, bytes]) -> None:
    assert assay("report", "c-1", "--format", "html").stdout == "<html>größe</html>"


def test_report_into_a_folder_writes_both_forms(
    assay: Assay, with_report: dict[str, bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "a" / "b"
    ended = assay("report", "c-1", "-o", folder, "--json")
    assert json.loads(ended.stdout) == {
        "campaign_id": "c-1",
        "files": {"json": str(folder / "report.json"), "html": str(folder / "report.html")},
    }
    assert (folder / "report.json").read_bytes() == with_report["json"]
    assert (folder / "report.html").read_bytes() == with_report["html"]
    assert sorted(p.name for p in folder.iterdir()) == ["report.html", "report.json"]


def test_a_report_whose_records_changed_since_is_shown_with_a_warning(
    assay: Assay, script: Script, with_report: dict[str, bytes], tmp_path: Path
) -> None:
    file = "records/c-1.0000/slice-00000.parquet"
    script.changed = [campaign_pb2.ChangedFile(run_id="c-1.0000", file=file, what="FILE_CHANGE_MISSING")]
    ended = assay("report", "c-1", "--json")
    assert (ended.code, json.loads(ended.stdout)) == (0, REPORT)
    assert ended.stderr.splitlines() == [
        "",
        "warning: 1 file of records is not what this report was made from:",
        f"  {file} of run c-1.0000: missing",
        "The report stays valid, because it was made from intact files, but it cannot be made again: check "
        "the server's disk, and submit the campaign again.",
    ]
    written = json.loads(assay("report", "c-1", "-o", tmp_path, "--json").stdout)
    assert written["changed_records"] == [{"run_id": "c-1.0000", "file": file, "what": "missing"}]


def test_report_as_text_into_a_folder(assay: Assay, with_report: dict[str, bytes], tmp_path: Path) -> None:
    ended = assay("report", "c-1", "-o", tmp_path, "--format", "text")
    assert ended.stdout == f"written to {tmp_path / 'report.txt'}\n"
    assert "synthetic" in (tmp_path / "report.txt").read_text()


def test_a_folder_that_cannot_be_written_is_a_storage_error(
    assay: Assay, with_report: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    ended = assay("report", "c-1", "-o", tmp_path / "file")
    assert (ended.code, ended.stdout) == (8, "")
    assert str(tmp_path / "file" / "report.json") in ended.stderr


def test_an_interrupted_watch_ends_with_130(assay: Assay, script: Script) -> None:
    def interrupted(_: str) -> Iterator[campaign_pb2.CampaignStatus]:
        yield status("running")

    script.watch = interrupted
    from assay_client.cli.verbs.lab import status as module  # noqa: PLC0415

    original = module.follow

    def follow_and_interrupt(statuses: Any, **_: bool) -> Any:
        next(iter(statuses))
        raise KeyboardInterrupt

    module.follow = follow_and_interrupt  # type: ignore[assignment]
    try:
        ended = assay("lab", "status", "--follow", "c-1")
    finally:
        module.follow = original
    assert (ended.code, ended.stdout) == (130, "")
    assert not any(isinstance(r, campaign_pb2.CancelRequest) for r in script.requests)


@pytest.mark.parametrize("name", ["markdown", "md"])
def test_report_as_markdown(assay: Assay, with_report: dict[str, bytes], tmp_path: Path, name: str) -> None:
    ended = assay("report", "c-1", "--format", name)
    assert ended.code == 0
    assert ended.stdout.startswith("# Assay: c (synthetic)\n")
    assert "the file ends in the middle" in ended.stdout
    written = assay("report", "c-1", "--format", name, "-o", tmp_path, "--json")
    assert json.loads(written.stdout)["files"] == {"markdown": str(tmp_path / "report.md")}
    text = (tmp_path / "report.md").read_text()
    named = re.findall(r"\]\((report-pictures/[^)]+\.svg)\)", text)
    assert named and all((tmp_path / path).read_text().startswith("<svg ") for path in named)
    shown = [line for line in text.splitlines() if line and not line.startswith("![")]
    # On the terminal there are no pictures, and so no words about them.
    printed = [line for line in ended.stdout.splitlines() if line]
    assert [line for line in shown if line in printed] == printed
