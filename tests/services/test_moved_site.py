"""A campaign that began on SQLite and local disk moves to PostgreSQL and a bucket while paused, and back.

At both moves an attempt is under way, of which the server has segments. Server, agent, PostgreSQL and
SeaweedFS are processes; the recordings are synthetic and are played in recorded time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from assay_core.records.campaign import AttemptState
from assay_server.database.opening import open_database
from assay_server.store.sql import SqlTransaction
from tests.services.postgresql import programs
from tests.services.seaweedfs import KEY, SECRET, OwnSeaweedfs, program
from tests.support.integration.ended_campaigns import ended, files_in
from tests.support.integration.harness import BIN, Lab, lab, wait_until
from tests.support.integration.paced_recordings import write_paced_recordings

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("ASSAY_SERVICES") or programs() is None or program() is None,
        reason="'make services-long' has a PostgreSQL and SeaweedFS",
    ),
    pytest.mark.processes,
    pytest.mark.timeout(900),
]
RUNS = 5


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings of more launches than the metadata hold in segments, each played for some seconds."""
    folder = tmp_path_factory.mktemp("recordings")
    path = folder / "campaign.yaml"
    path.write_text(write_paced_recordings(folder, runs=RUNS, launches=60_000, seconds=6.0))
    return path


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ...]]:
    """The words that name a bucket for ``assay-server move``."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with OwnSeaweedfs() as own:
        own.make_bucket("lab")
        yield ("--records-to", "s3://lab/moved", "--records-endpoint", own.endpoint)


@contextmanager
def begun(campaign: Path, *, slots: int) -> Iterator[tuple[Lab, str]]:
    """A lab on SQLite and its own folder, with the campaign under way."""
    with lab(lease_ms=600_000, heartbeat_ms=500) as made:
        made.start_server()
        campaign_id = made.submit(campaign)
        options = ("--flush", "300ms", f"--recorded-slots={slots}", f"--agent-id={'a1' * 16}")
        made.start_agent("agent", *options)
        yield made, campaign_id


def stop_at_staged_segments(made: Lab, campaign_id: str) -> None:
    """Stop the server while an attempt is under way of which it has staged segments.

    Its agent stands still until :func:`go_on`, so that the attempt cannot end meanwhile.
    """
    agent = made.processes["agent"]
    with closing(open_database(made.server_state)) as store:

        def is_staged() -> bool:
            with store.snapshot() as read:
                return bool(staged(read))

        while True:
            wait_until(is_staged, f"a staged segment\n{made.logs()}", 200)
            agent.send_signal(signal.SIGSTOP)
            made.assay("lab", "pause", campaign_id)  # meanwhile the server takes what was on its way
            if is_staged():
                break
            agent.send_signal(signal.SIGCONT)  # the attempt ended at that moment; another one follows
            made.assay("lab", "resume", campaign_id)
    assert made.stop("server") == 0, made.logs()


def staged(read: SqlTransaction) -> list[tuple[str, int]]:
    """Staged segments of unfinished attempts: by run, and their number."""
    return [
        (attempt.key.run_id, segment.index)
        for attempt in read.attempts_in((AttemptState.LEASED,))
        for segment in read.segments(attempt.key)
    ]


def go_on(made: Lab, campaign_id: str) -> None:
    made.start_server()  # by the notes in its state folder
    made.processes["agent"].send_signal(signal.SIGCONT)
    made.assay("lab", "resume", campaign_id)


def move(made: Lab, *words: str) -> dict[str, Any]:
    command = [str(BIN / "assay-server"), "move", "--state", str(made.server_state), "--json", *words]
    moved = subprocess.run(command, capture_output=True, text=True, check=False)
    assert moved.returncode == 0, moved.stderr
    document: dict[str, Any] = json.loads(moved.stdout)
    return document


def test_a_paused_campaign_with_staged_segments_moves_to_a_site_and_back_and_goes_on(
    campaign: Path, fresh_database: str, bucket: tuple[str, ...]
) -> None:
    with begun(campaign, slots=RUNS) as (made, campaign_id):
        undisturbed = ended(made, campaign_id, tried_once=True)
    with begun(campaign, slots=1) as (made, campaign_id):
        agent = made.processes["agent"].pid
        stop_at_staged_segments(made, campaign_id)
        assert files_in(made, "staging")
        move(made, "--to", fresh_database)
        assert move(made, *bucket)["segments"] > 0
        assert files_in(made, "staging") == files_in(made, "records") == []
        go_on(made, campaign_id)
        stop_at_staged_segments(made, campaign_id)
        assert files_in(made, "staging") == files_in(made, "records") == []
        assert move(made, "--records-to", "folder")["segments"] > 0
        move(made, "--to", "sqlite")
        assert files_in(made, "staging")
        go_on(made, campaign_id)
        assert made.processes["agent"].pid == agent and made.processes["agent"].poll() is None
        found = ended(made, campaign_id, tried_once=True)
    assert found == undisturbed
