"""Campaigns through the command line with their metadata in PostgreSQL: SQLite's report, byte for byte.

So they end after kills and moves; a move to a full disk changes nothing.

Server and agent are processes; the GPU is virtual, so everything is synthetic.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from assay_server.database.opening import open_database
from assay_server.store.model import Slice
from assay_server.store.sqlite import SqliteStore
from tests.services.postgresql import OwnPostgresql
from tests.support.integration.ended_campaigns import Ended, ended
from tests.support.integration.harness import BIN, Lab, lab, wait_until
from tests.support.server.stored_values import campaign, run

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

SLICES = 8
WORKLOAD = f"""\
workload = "steps"
seed = 5
[kernels.scale]
name = "void scale<float>(float*, int)"
block = 128
instructions = 4000
global_loads = 4
[kernels.sum]
name = "void sum<float>(float const*, float*)"
block = 256
instructions = 900
global_loads = 8
[[phases]]
repeat = {SLICES * 20}
variables.size = {{ choices = [1, 2, 4], probabilities = [0.5, 0.3, 0.2] }}
steps = [
    {{ kernel = "scale", grid = 64, grid_by = "size", times = 3 }},
    {{ kernel = "sum", grid = 320, times = 2 }},
]
"""
CAMPAIGN = f"""\
campaign: moved
synthetic: true
gpus: [V100]
detailed: {{first: {SLICES * 100}, slice_launches: 100, sets: features}}
workloads: [{{name: steps, command: [steps.toml]}}]
analysis: {{methods: [pks, random: {{launches: 4}}]}}
"""


@contextmanager
def begun(*options: str) -> Iterator[tuple[Lab, str]]:
    """A lab whose server has these options, with an agent, and the campaign under way."""
    with lab(lease_ms=60_000, heartbeat_ms=500) as made:
        (made.root / "steps.toml").write_text(WORKLOAD)
        (made.root / "moved.yaml").write_text(CAMPAIGN)
        made.start_server(*options)
        campaign_id = made.submit(made.root / "moved.yaml")
        # Its GPU is named after it, and the files after their GPU.
        made.start_agent("agent", "--recorded-slots=0", "--virtual=V100", f"--agent-id={'a1' * 16}")
        yield made, campaign_id


def until_done(made: Lab, slices: int) -> None:
    """Wait until so many slices are published, and not all."""

    def enough() -> bool:
        with closing(open_database(made.server_state)) as store, store.snapshot() as read:
            return len(read.published_slices()) >= slices

    wait_until(enough, f"{slices} published slices\n{made.logs()}", 200)


def move(made: Lab, to: str) -> None:
    command = [BIN / "assay-server", "move", "--state", made.server_state, "--to", to]
    moved = subprocess.run(command, capture_output=True, text=True, check=False)
    assert moved.returncode == 0, moved.stderr


@pytest.fixture(scope="module")
def on_sqlite(own_postgresql: OwnPostgresql) -> Ended:
    """The same campaign, undisturbed, on SQLite."""
    with begun() as (made, campaign_id):
        return ended(made, campaign_id)


def test_postgresql_is_killed_in_mid_campaign_and_nothing_is_lost_or_doubled(
    own_postgresql: OwnPostgresql, fresh_database: str, on_sqlite: Ended
) -> None:
    with begun("--database", fresh_database) as (made, campaign_id):
        for slices in (2, 4, 6):
            until_done(made, slices)
            own_postgresql.kill()
            own_postgresql.start()
        found = ended(made, campaign_id)
    assert found == on_sqlite


def test_a_paused_campaign_moves_to_postgresql_and_back_and_goes_on_with_its_agent(
    fresh_database: str, on_sqlite: Ended
) -> None:
    with begun() as (made, campaign_id):
        agent = made.processes["agent"].pid
        for slices, to in ((2, fresh_database), (4, "sqlite")):
            until_done(made, slices)
            made.assay("lab", "pause", campaign_id)
            assert made.stop("server") == 0, made.logs()
            move(made, to)
            assert (made.server_state / "metadata.sqlite").exists() == (to == "sqlite")
            made.start_server()
            made.assay("lab", "resume", campaign_id)
        assert made.processes["agent"].pid == agent and made.processes["agent"].poll() is None
        found = ended(made, campaign_id)
    assert found == on_sqlite


def rows(state: Path) -> list[str]:
    """All rows of SQLite's file but the number of the state, which a move gives it."""
    with closing(sqlite3.connect(state / "metadata.sqlite")) as connection:
        return [line for line in connection.iterdump() if 'INTO "tokens"' not in line]


@pytest.fixture
def small_disk(own_postgresql: OwnPostgresql) -> Iterator[Path]:
    """A disk of 24 MiB that holds the fresh database."""
    if os.geteuid() != 0:
        pytest.skip("a disk of its own takes root, to mount it")
    folder = Path(tempfile.mkdtemp(prefix="assay-disk-"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "assay", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("this machine lets nobody mount a disk in memory")
    shutil.chown(folder, "postgres")
    try:
        own_postgresql.administrate(
            "DROP DATABASE IF EXISTS fresh WITH (FORCE)",
            f"CREATE TABLESPACE small LOCATION '{folder}'",
            "CREATE DATABASE fresh TABLESPACE small",
            database="postgres",
        )
        yield folder
    finally:
        own_postgresql.administrate(
            "DROP DATABASE IF EXISTS fresh WITH (FORCE)", "DROP TABLESPACE IF EXISTS small",
            database="postgres",
        )  # fmt: skip
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


def test_a_full_disk_of_postgresql_moves_nothing_and_with_room_the_same_move_succeeds(
    own_postgresql: OwnPostgresql, small_disk: Path, tmp_path: Path
) -> None:
    with closing(SqliteStore(tmp_path / "metadata.sqlite")) as store, store.transaction() as write:
        runs = [run(number) for number in range(500)]
        write.add_campaign(campaign(), runs, [Slice(each.run_id, 0) for each in runs])
    before = rows(tmp_path)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize - (1 << 20)))
    command = [BIN / "assay-server", "move", "--state", tmp_path, "--to", own_postgresql.url("fresh")]
    for full in (True, False):
        if not full:
            ballast.unlink()
        moved = subprocess.run(command, capture_output=True, text=True, check=False)
        if full:
            assert moved.returncode == 8 and not moved.stdout
            assert f"{own_postgresql.url('fresh')}: the disk of the database is full" in moved.stderr
            assert "free space on it" in moved.stderr
            assert rows(tmp_path) == before
        else:
            assert moved.returncode == 0, moved.stderr
    with closing(open_database(tmp_path)) as now, now.snapshot() as read:
        assert len(read.runs("made-1")) == 500
