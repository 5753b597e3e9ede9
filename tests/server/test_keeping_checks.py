"""``assay-server check``: what is wrong with a state folder is named, and nothing in it is changed."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from assay_sampling.errors import StorageError
from assay_server.app import Server, ServerSettings
from assay_server.cli.output import progress_shown
from assay_server.cli.program import program
from assay_server.maintenance.check import check_state
from assay_server.store.sqlite import SqliteStore
from tests.support.server.made_segments import made_segments
from tests.support.server.playing_agent import PlayingAgent
from tests.support.server.server_support import StandInExecutor, eventually

# Its tests share what takes long to make.
pytestmark = pytest.mark.xdist_group("keeping_checks")

TWO_RUNS = """\
campaign: two
workloads:
  - {name: one, recordings: [{device: V100, light: 1.sqlite}]}
  - {name: two, recordings: [{device: V100, light: 2.sqlite}]}
"""
ENDED = """\
campaign: ended
workloads: [{name: training, recordings: [{device: V100, light: light.sqlite}]}]
"""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped server's: a campaign that has ended, and one with a run done and one under way."""
    analysis, top = StandInExecutor(), tmp_path_factory.mktemp("made")
    settings = ServerSettings(state_dir=top / "state", listen=(f"unix:{top}/s",))
    with (
        Server(settings, make_executor=lambda: analysis) as server,
        PlayingAgent(server.addresses[0]) as agent,
    ):
        agent.register()
        agent.submit(ENDED)
        agent.play(made_segments((10,)))
        eventually(lambda: agent.status("ended-1").state == "done", "the end of the campaign")
        agent.submit(TWO_RUNS)
        agent.play(made_segments((20,)))
        agent.upload(agent.work(wait_ms=5000).key, made_segments((40, 20_000, 30))[:2])
        assert check_state(top / "state").findings == (), "while it serves"
    analysis.close()
    return top / "state"


@pytest.fixture
def state(made: Path, short_path: Path) -> Path:
    shutil.copytree(made, short_path / "state")
    return short_path / "state"


def sql(state: Path, statement: str) -> None:
    with closing(sqlite3.connect(state / "metadata.sqlite")) as connection:
        connection.execute(statement)
        connection.commit()


def flip(path: Path, at: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 8
    path.write_bytes(data)


def test_a_sound_state_has_no_findings_and_stays_as_it_is(state: Path) -> None:
    before = contents(state)
    done = CliRunner().invoke(program, ["check", "--state", str(state), "--json"])
    document = json.loads(done.stdout)
    assert (done.exit_code, document["findings"]) == (0, [])
    assert (document["campaigns"], document["runs"], document["files"]) == (2, 3, 2)
    own = {"lock", "last-check.json"}
    assert {k: v for k, v in contents(state).items() if "sqlite-" not in k and k not in own} == {
        k: v for k, v in before.items() if "sqlite-" not in k and k not in own
    }


RECORD, STAGED = "records/two-1.0000/slice-00000.parquet", "staging/two-1.0001/slice-00000-attempt-0001"
REPORT = "reports/ended-1/report.json"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20])


# What happens to a file -> the kind of the finding, and its subject.
FILES: dict[str, tuple[str, Callable[[Path], object], str, str]] = {
    "a flipped bit in a record": (RECORD, flip, "changed", RECORD),
    "a record cut off": (RECORD, cut, "changed", RECORD),
    "a record that is gone": (RECORD, Path.unlink, "missing", RECORD),
    "a file of a person": ("records/notes.txt", Path.touch, "unknown", "records/notes.txt"),
    "a flipped bit in staging": (STAGED, flip, "segment", "run two-1.0001 slice 0 attempt 1"),
    "a report that is gone": (REPORT, Path.unlink, "report", REPORT),
    "a torn report": (REPORT, cut, "report", REPORT),
}
# What a statement does to the rows -> the kind of the finding, and its subject.
ROWS = {
    "slices SET launches = 19 WHERE run_id = 'two-1.0000'": ("rule", "slice 0 of run two-1.0000"),
    "slices SET state = 'waiting' WHERE run_id = 'two-1.0000'": ("rule", "slice 0 of run two-1.0000"),
    "slices SET state = 'dreaming' WHERE run_id = 'two-1.0000'": ("row", "run two-1.0000"),
    "attempts SET state = 'failed' WHERE run_id = 'two-1.0001'": ("rule", "slice 0 of run two-1.0001"),
    "attempts SET token = token * 2 WHERE run_id = 'two-1.0001'": (
        "rule",
        "run two-1.0001 slice 0 attempt 1",
    ),
    "runs SET campaign_id = 'x-1' WHERE run_id = 'two-1.0001'": ("rule", "runs, row 3"),
    "runs SET state = 'done' WHERE run_id = 'two-1.0001'": ("rule", "run two-1.0001"),
    "runs SET state = 'running' WHERE run_id = 'ended-1.0000'": ("rule", "run ended-1.0000"),
    "campaigns SET compiled = '[]' WHERE name = 'two'": ("row", "campaign two-1"),
}


def require_found(state: Path, kind: str, subject: str) -> None:
    found = check_state(state).findings
    assert (kind, subject) in {(str(each.kind), each.subject) for each in found}, found


@pytest.mark.parametrize("damage", FILES)
def test_a_damaged_file_is_named(state: Path, damage: str) -> None:
    name, happens, kind, subject = FILES[damage]
    happens(state / name)
    require_found(state, kind, subject)
    done = CliRunner().invoke(program, ["check", "--state", str(state)])
    assert isinstance(done.exception, StorageError) and done.exception.exit_code == 8
    assert f"{subject}: " in done.stdout and f"[{kind}]" in done.stdout


@pytest.mark.parametrize("statement", ROWS)
def test_a_row_that_breaks_a_rule_is_named(state: Path, statement: str) -> None:
    sql(state, f"UPDATE {statement}")
    require_found(state, *ROWS[statement])


def test_a_torn_page_of_the_database_is_named(state: Path) -> None:
    _tear(state)
    require_found(state, "database", "metadata.sqlite")


def _tear(state: Path) -> None:
    """The second half of a page never reached the disk."""
    sql(state, "PRAGMA journal_mode = DELETE")
    with closing(sqlite3.connect(state / "metadata.sqlite")) as connection:
        [root] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'attempts'").fetchone()
        [size] = connection.execute("PRAGMA page_size").fetchone()
    data = bytearray((state / "metadata.sqlite").read_bytes())
    data[(root - 1) * size : (root - 1) * size + size // 2] = bytes(size // 2)
    (state / "metadata.sqlite").write_bytes(data)


def test_a_server_does_not_start_on_a_torn_database(state: Path, make_server: Callable[..., Server]) -> None:
    _tear(state)
    before = contents(state / "records")
    with pytest.raises(StorageError, match=r"the database is damaged, or its disk .*dmesg.*restore"):
        make_server()
    assert contents(state / "records") == before and not (state / "set-aside").exists()


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.ENOSPC])
def test_a_database_that_cannot_be_read_on_a_disk_that_fails_is_not_called_damaged(
    state: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _tear(state)

    def refused(path: Path, content: bytes) -> None:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr("assay_server.store.sqlite.write_atomically", refused)
    with closing(SqliteStore(state / "metadata.sqlite")) as store, pytest.raises(StorageError) as caught:
        store.require_sound()
    failed = code != errno.ENOSPC  # a full disk still gives what it holds
    assert ("its disk fails" in caught.value.cause) is failed
    assert ("whether it is damaged is not known" in caught.value.cause) is failed
    assert caught.value.cause.startswith("the database is damaged, or its disk") is not failed


def test_the_columns_of_many_files_are_read_once_and_those_of_another_kind_again(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[pa.Schema] = []
    monkeypatch.setattr("assay_server.maintenance.check.check_schema", read.append)
    assert check_state(state).findings == ()
    assert check_state(state).files == 2
    kinds = {pq.read_schema(path).serialize().to_pybytes() for path in (state / "records").rglob("*.parquet")}
    assert len(read) == 2 * len(kinds)


def test_a_check_says_how_far_it_is(state: Path) -> None:
    told: list[tuple[int, int]] = []
    checked = check_state(state, lambda runs, of: told.append((runs, of)))
    assert told == [(number + 1, checked.runs) for number in range(checked.runs)]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("screen", "drawn"), [(_Terminal(), True), (io.StringIO(), False)])
def test_progress_is_drawn_at_a_terminal_only(
    screen: io.StringIO, drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen)
    with progress_shown() as done:
        done("runs looked at", 1, 3)
    text = screen.getvalue()
    assert ("1/3" in text and "runs looked at" in text) if drawn else not text
