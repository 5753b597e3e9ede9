"""State folders that release 0.1.0 left: today's programs open them, and the campaigns in them go on."""

from __future__ import annotations

import json
import os
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from assay_sampling.launches.table import OPERATION_FIELDS
from golden.cases import columns_of
from golden.comparing import comparable, differences
from golden.running import agent, as_process, in_process, server, workplace

HERE = Path(__file__).parent
ARCHIVE = HERE / "state" / "written_by_0.1.0.tar.gz"

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("states_left")]


@pytest.fixture
def left() -> Iterator[Path]:
    """Both folders where their programs ran, with the address of a server in the environment."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder, workplace(Path(folder)) as work:
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(work, filter="data")
        for path in work.rglob("*"):
            if path.suffix in (".json", ".sql"):
                path.write_text(path.read_text().replace("@WORK@", str(work)))
        for state in ("server", "agent"):
            (work / state).chmod(0o700)
        with closing(sqlite3.connect(work / "server" / "metadata.sqlite")) as database:
            database.executescript((work / "metadata.sql").read_text())
        os.environ["ASSAY_SERVER"] = f"unix:{work}/socket"
        yield work


def asked(*words: str) -> Any:
    step = in_process([*words, "--json"])
    assert step["exit_code"] == 0, step["stderr"]
    return step["stdout"]


def golden_columns() -> dict[str, dict[str, str]]:
    """What the records of an undisturbed campaign hold, column by column."""
    steps = json.loads((HERE / "expected" / "lab.json").read_text())
    return {step["record"]: step["columns"] for step in steps if "record" in step}


def test_what_ended_is_shown_and_what_had_not_goes_on(left: Path) -> None:
    stored = {name: json.loads((left / f"server/reports/{name}/report.json").read_text())
              for name in ("recorded-1", "failing-1")}  # fmt: skip
    spooled = sorted(path.name for path in (left / "agent/spool").iterdir())
    assert spooled == ["virtual-1.0001-0-1", "virtual-1.0009-0-1"]
    # What the agent still spools was written, but not published: it is written again, as today's programs do.
    written_again = {name.split("-0-")[0] for name in spooled}
    published = {path: path.read_bytes() for path in (left / "server/records").rglob("*.parquet")
                 if path.parent.name not in written_again}  # fmt: skip
    assert len(published) == 9
    with server(left / "server", os.environ["ASSAY_SERVER"]):
        states = {one["campaign_id"]: one["state"] for one in asked("status")["campaigns"]}
        assert states == {
            "recorded-1": "done", "failing-1": "failed", "later-1": "running", "virtual-1": "running",
        }  # fmt: skip
        assert asked("status")["set_aside"] == []
        for name, report in stored.items():
            for part in ("rows", "runs", "summary", "selections"):
                assert not differences(comparable(report[part]), comparable(asked("report", name)[part]))
        failed = asked("runs", "show", "failing-1.0001")
        assert [one["failure"]["failure_class"] for one in failed["attempts"]] == ["input_unreadable"]
        with agent(left / "agent", "--virtual", "V100", "--virtual", "RTX 3070"):
            assert in_process(["watch", "virtual-1", "--json"])["exit_code"] == 0
            later = asked("status", "later-1")
            assert {run["state"] for run in later["runs"]} == {"waiting"}
        for name in spooled:
            run_id = name.split("-0-")[0]
            [first] = [one for one in asked("runs", "show", run_id)["attempts"] if one["slice"] == 0]
            assert (first["attempt"], first["state"]) == (1, "published"), "it was not measured again"
    assert list((left / "agent/spool").iterdir()) == []
    assert {path: path.read_bytes() for path in published} == published
    records = [path for path in (left / "server/records").rglob("*.parquet") if "virtual-1" in str(path)]
    golden = golden_columns()
    assert sorted(str(path.relative_to(left)) for path in records) == sorted(
        path for path in golden if "virtual-1" in path
    )
    for path in records:
        found = columns_of(path)
        # Which operation launched what was not recorded then.
        for field in OPERATION_FIELDS:
            found.pop(field.name, None)
        assert found == golden[str(path.relative_to(left))]


def test_a_gpu_in_quarantine_stays_there(left: Path) -> None:
    found = as_process("assay-agent", ["quarantine", "list", "--state", str(left / "agent"), "--json"])
    [entry] = found["stdout"]["quarantined"]
    assert (entry["gpu"], entry["run"]) == ("GPU-virtual-A100-0-made-up", "later-1.0000")
