"""The table that moves while a campaign is watched."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from rich.console import Console

from assay_client.cli.live import follow_live
from assay_client.cli.reporters.live import LiveView, live_text
from assay_sampling.errors import ServerUnreachableError

CONDITION = {"cache": "none", "clock": "none", "sm_percent": 100}


def _status(done: int, total: int = 40, **changes: Any) -> dict[str, Any]:
    plain = {
        "campaign_id": "c-1", "state": "running", "paused": False, "synthetic": True, "runs_done": done,
        "runs_total": total, "runs_running": 2, "runs_failed": 0, "runs_cancelled": 0, "runs_paused": 0,
        "slices": total, "slices_done": done, "retries": 0, "gpu_hours": 1.25, "waiting": [], "resting": [],
        "eta": {"remaining_ms": 7_500_000, "low_ms": 0, "high_ms": 0, "at_least": False, "missing": None},
    }  # fmt: skip
    return {**plain, **changes}


def _gpu(number: int, run_id: str | None) -> dict[str, Any]:
    name, agent = f"NVIDIA A100-SXM4-80GB {number}", f"box{number}"
    return {"name": name, "agent": agent, "run_id": run_id, "slice": 3, "leased_at": "2026-01-02T03:04:05Z"}


def _run(number: int, **changes: Any) -> dict[str, Any]:
    plain = {
        "run_id": f"c-1.{number:04}", "workload": "a workload with a long name and more", "level": "detailed",
        "condition": CONDITION, "state": "done", "paused": False, "flags": [], "retries": 0,
    }  # fmt: skip
    return {**plain, **changes}


def test_it_shows_progress_gpus_and_the_runs_that_need_a_look() -> None:
    flagged = _run(1, flags=[{"name": "throttled", "detail": ""}])
    failed = _run(2, state="failed", retries=2)
    gpus = [_gpu(0, "c-1.0007"), _gpu(1, "other-1.0000"), _gpu(2, None)]
    text = live_text(LiveView(_status(10), [_run(0), flagged, failed], gpus), 120, 40)
    assert "10 of 40 runs done, 2 running, 1.2 GPU hours, done in 2 h 05 min" in text
    assert "25 %" in text and "synthetic" in text
    assert "c-1.0007 slice 3" in text and "box0" in text
    assert "other-1" not in text and "box2" not in text
    assert text.index("c-1.0002") < text.index("c-1.0001")
    assert "2 retries" in text and "throttled" in text and "c-1.0000" not in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit_and_reasons_are_whole(width: int) -> None:
    reason = (
        "no agent offers an H100 with Nsight Compute 2026.1, and 2 agents are in maintenance until Monday"
    )
    waiting = [{"kind": "no_agent", "reason": reason, "first_run_id": "c-1.0020", "runs": 20}]
    runs = [_run(n, retries=1) for n in range(30)]
    view = LiveView(_status(10, waiting=waiting), runs, [_gpu(n, f"c-1.{n:04}") for n in range(30)])
    text = live_text(view, width, 30)
    assert max(map(len, text.splitlines())) <= width
    assert reason in " ".join(text.split())
    assert "more runs: assay lab status c-1" in " ".join(text.split())
    assert "more GPUs: assay lab gpus" in " ".join(text.split())


def test_names_cannot_move_the_cursor() -> None:
    hostile = _run(1, workload="\x1b[2Jgone\nnext", state="failed")
    assert "\x1b" not in live_text(LiveView(_status(1), [hostile]), 80, 30)


def _screen() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=80, height=30)


def test_the_last_status_is_returned_even_if_looking_fails() -> None:
    def look(_status: Mapping[str, Any]) -> LiveView:
        raise ServerUnreachableError("unix:x", "no server answers", "start it")

    statuses = [_status(done) for done in (1, 2, 40)]
    assert follow_live(statuses, look, _screen())["runs_done"] == 40


def test_what_ends_the_statuses_ends_the_table() -> None:
    def statuses() -> Iterator[dict[str, Any]]:
        yield _status(1)
        raise ServerUnreachableError("unix:x", "the server went away", "start it")

    with pytest.raises(ServerUnreachableError):
        follow_live(statuses(), LiveView, _screen())
