"""What server and agent keep on the disk is for their user alone, whatever the umask says."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from tests.support.integration.harness import BIN, Lab, lab, wait_until
from tests.support.integration.made_workload import one_kernel
from tests.support.integration.second_user import NOBODY, needs_second_user

pytestmark = pytest.mark.processes

WORKLOAD = one_kernel("w")
CAMPAIGN = """\
campaign: c
synthetic: true
gpus: [V100]
detailed: {first: 20, sets: features}
workloads:
  - {name: w, command: [./w.toml], environment: {API_TOKEN: "0123456789"}}
analysis: {methods: [pks]}
"""


@pytest.fixture
def umask() -> Iterator[None]:
    """The umask of a careless administrator, which the programs inherit."""
    before = os.umask(0)
    yield
    os.umask(before)


# Programs without a secret, which a confined run starts as another user; nobody else may enter the state.
STAND_INS = ("virtual-tools",)


def open_to_others(state: Path) -> dict[str, str]:
    """Everything in a state folder, itself included, of which others have any right."""
    found = {}
    within = [Path(folder, name) for folder, *names in os.walk(state) for name in chain(*names)]
    for path in (state, *sorted(within)):
        with contextlib.suppress(FileNotFoundError):  # the programs remove files meanwhile
            mode = path.lstat().st_mode
            if path.name in STAND_INS or path.parent.name in STAND_INS:
                assert stat.S_IMODE(mode) == 0o755
            elif stat.S_IMODE(mode) & 0o077 and not stat.S_ISLNK(mode):
                found[str(path.relative_to(state.parent))] = f"{stat.S_IMODE(mode):04o}"
    return found


def write_campaign(root: Path) -> Path:
    (root / "w.toml").write_text(WORKLOAD)
    (root / "w.toml").chmod(0o755)
    (root / "c.yaml").write_text(CAMPAIGN)
    return root / "c.yaml"


def run_campaign(laboratory: Lab) -> None:
    laboratory.server_state.rmdir()
    laboratory.start_server()
    laboratory.start_agent("agent", "--recorded-slots=0", "--virtual=V100")
    campaign_id = laboratory.submit(write_campaign(laboratory.root))
    assert laboratory.wait_for(campaign_id) == "done", laboratory.logs()


@pytest.mark.timeout(300)
def test_the_states_of_server_and_agent_are_closed_to_others_whatever_the_umask(umask: None) -> None:
    with lab() as laboratory:
        run_campaign(laboratory)
        # The journals of the database are there while it is open.
        names = {path.name for path in laboratory.server_state.iterdir()}
        assert {"metadata.sqlite", "metadata.sqlite-wal", "metadata.sqlite-shm", "reports"} <= names
        assert open_to_others(laboratory.server_state) == {}
        assert open_to_others(laboratory.root / "agent") == {}


@pytest.mark.timeout(300)
def test_the_state_of_assay_run_is_closed_to_others_reports_and_log_included(
    umask: None, tmp_path: Path
) -> None:
    campaign = tmp_path / "r.yaml"
    campaign.write_text(
        "campaign: r\nworkloads:\n  - {name: w, recordings: [{device: V100, light: x.csv}]}\n"
    )
    (tmp_path / "x.csv").write_text("nothing that anybody reads\n")
    state = tmp_path / "state"
    done = subprocess.run(
        [BIN / "assay", "run", campaign, "--state", state],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (0, 6), done.stderr
    assert (state / "run.log").is_file()
    assert open_to_others(state) == {}


def test_a_state_that_an_earlier_release_left_open_is_closed_and_the_log_says_so() -> None:
    with lab() as laboratory:
        state = laboratory.server_state
        (state / "records" / "c-1.0000").mkdir(parents=True)
        for path in (state, *state.rglob("*")):
            path.chmod(0o755)
        laboratory.start_server()
        assert open_to_others(state) == {}
        log = laboratory.root / "server.log"
        wait_until(
            lambda: "was open to other users (mode 0755): it is 0700 now" in log.read_text(), "the log line"
        )


@needs_second_user
@pytest.mark.parametrize("program", ["assay-server", "assay-agent", "assay"])
def test_a_state_folder_of_another_user_is_refused(program: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    os.chown(state, NOBODY, NOBODY)
    (tmp_path / "c.yaml").write_text("campaign: c\n")
    verbs = {
        "assay-server": ["--listen", f"unix:{tmp_path}/s"],
        "assay-agent": ["run"],
        "assay": ["run", tmp_path / "c.yaml"],
    }
    refused = subprocess.run(
        [BIN / program, *verbs[program], "--state", state],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 8
    assert f"{state}: it belongs to user" in refused.stderr
    assert "run the program as that user, or name another folder with --state" in refused.stderr
    assert list(state.iterdir()) == []
