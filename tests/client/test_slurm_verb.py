"""``assay lab slurm sbatch`` with a stand-in of sbatch, a process that notes what it was given."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.support.client.server_answers import Assay

SBATCH = """#!/bin/bash
cat > "{folder}/script"
env > "{folder}/environment"
printf '%s\\n' "$@" > "{folder}/words"
{ends}
"""
TOKEN = "assay-join-1.secret"


class Sbatch:
    """A folder with a program ``sbatch`` that ends as a test says, and what it noted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ends_with("echo 12")

    def ends_with(self, line: str) -> None:
        program = self.folder / "sbatch"
        program.write_text(SBATCH.format(folder=self.folder, ends=line))
        program.chmod(0o755)

    @property
    def was_called(self) -> bool:
        return (self.folder / "script").exists()

    @property
    def script(self) -> str:
        return (self.folder / "script").read_text()

    @property
    def environment(self) -> dict[str, str]:
        lines = (self.folder / "environment").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sbatch:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("ASSAY_JOIN_TOKEN", raising=False)
    return Sbatch(folder)


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    return path


def test_agents_are_submitted_and_no_secret_is_in_the_script(
    assay: Assay, slurm: Sbatch, token_file: Path, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        ended = assay(
            "lab", "slurm", "sbatch", "--join", address, "--token-file", token_file,
            "--state-root", tmp_path / "jobs", "--agents", "3", "--partition", "gpu",
            "--account", "lab3", "--time", "4:00:00", "--exclusive",
            "--sbatch", "mem=8G", "--requeue-at-limit", "--json", "--", "--recorded-slots", "0",
        )  # fmt: skip
    assert (ended.code, ended.stderr) == (0, "")
    document = json.loads(ended.stdout)
    assert document["job_id"] == 12
    assert document["jobs"] == ["12_0", "12_1", "12_2"]
    assert document["warnings"] == []
    assert document["script"] == slurm.script
    for line in (
        "partition=gpu",
        "account=lab3",
        "time=4:00:00",
        "gres=gpu:1",
        "exclusive",
        "mem=8G",
        "array=0-2",
    ):
        assert f"#SBATCH --{line}" in slurm.script.splitlines()
    last = slurm.script.splitlines()[-1]
    assert f"--join={address} --token-file={token_file} --requeue --recorded-slots 0" in last
    assert TOKEN not in slurm.script
    assert (slurm.folder / "words").read_text() == "--parsable\n"
    assert (tmp_path / "jobs").stat().st_mode & 0o777 == 0o700


def test_a_token_of_the_environment_reaches_the_job_by_its_environment_alone(
    assay: Assay, slurm: Sbatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {
        "ASSAY_JOIN_TOKEN": TOKEN, "CUDA_VISIBLE_DEVICES": "3", "SBATCH_SIGNAL": "KILL",
        "SBATCH_EXPORT": "NONE", "SBATCH_ACCOUNT": "mine", "SBATCH_PARTITION": "site",
        "ASSAY_SERVER": "unix:/login/socket",
        "ASSAY_AGENT_SPOOL_LIMIT": "1G", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ended = assay(
        "lab",
        "slurm",
        "sbatch",
        "--join",
        "127.0.0.1:9",
        "--state-root",
        tmp_path / "jobs",
        "--partition",
        "gpu",
    )
    assert ended.code == 0
    assert "Slurm job 12: 1 agent" in ended.stdout
    assert "warning: nothing answers at 127.0.0.1:9" in ended.stderr
    passed = slurm.environment
    assert {name for name in variables if name in passed} == {
        "ASSAY_JOIN_TOKEN", "SBATCH_ACCOUNT", "ASSAY_AGENT_SPOOL_LIMIT", "OMP_NUM_THREADS",
    }  # fmt: skip
    assert TOKEN not in slurm.script


def test_a_token_that_no_agent_needs_stays_here(
    assay: Assay, slurm: Sbatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_JOIN_TOKEN", TOKEN)
    socket_here = f"unix:{tmp_path}/none"
    assert (
        assay("lab", "slurm", "sbatch", "--server", socket_here, "--state-root", tmp_path / "jobs").code == 0
    )
    assert "ASSAY_JOIN_TOKEN" not in slurm.environment


def test_a_dry_run_prints_the_script_and_does_nothing(assay: Assay, slurm: Sbatch, tmp_path: Path) -> None:
    root = tmp_path / "jobs"
    ended = assay("lab", "slurm", "sbatch", "--join", "127.0.0.1:9", "--state-root", root, "--dry-run")
    assert ended.code == 0
    assert ended.stdout.startswith("#!/bin/bash\n")
    assert "warning" not in ended.stdout
    assert "nothing answers at 127.0.0.1:9" in ended.stderr
    assert not slurm.was_called
    assert not root.exists()


def test_without_sbatch_it_says_where_to_run_it(
    assay: Assay, slurm: Sbatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ended = assay("lab", "slurm", "sbatch", "--server", "unix:/x/s", "--state-root", tmp_path / "jobs")
    assert ended.code == 10
    assert "sbatch: it is not in the PATH; run this on a login node" in ended.stderr


def test_what_slurm_refuses_is_told_in_all_its_words(assay: Assay, slurm: Sbatch, tmp_path: Path) -> None:
    said = "sbatch: error: Invalid account\\nsbatch: error: Batch job submission failed: no such partition"
    slurm.ends_with(f"printf '{said}' >&2; exit 1")
    ended = assay(
        "lab", "slurm", "sbatch", "--server", "unix:/x/s", "--state-root", tmp_path / "jobs", "--json"
    )
    assert ended.code == 7
    cause = json.loads(ended.stderr.splitlines()[-1])["error"]["cause"]
    assert "Invalid account" in cause
    assert "no such partition" in cause


def test_an_answer_without_a_number_is_no_success(assay: Assay, slurm: Sbatch, tmp_path: Path) -> None:
    slurm.ends_with("echo hello")
    ended = assay("lab", "slurm", "sbatch", "--server", "unix:/x/s", "--state-root", tmp_path / "jobs")
    assert ended.code == 7
    assert "'hello'" in ended.stderr


def test_the_cluster_is_told_where_sbatch_names_one(assay: Assay, slurm: Sbatch, tmp_path: Path) -> None:
    slurm.ends_with("echo '77;north'")
    ended = assay(
        "lab", "slurm", "sbatch", "--server", "unix:/x/s", "--state-root", tmp_path / "jobs", "--json"
    )
    document = json.loads(ended.stdout)
    assert (document["job_id"], document["cluster"], document["jobs"]) == (77, "north", ["77"])


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o777])
def test_a_state_root_that_others_may_enter_is_refused(
    assay: Assay, slurm: Sbatch, tmp_path: Path, mode: int
) -> None:
    root = tmp_path / "jobs"
    root.mkdir()
    root.chmod(mode)
    ended = assay("lab", "slurm", "sbatch", "--server", "unix:/x/s", "--state-root", root)
    assert ended.code == 8
    assert f"chmod 700 {root}" in ended.stderr
    assert not slurm.was_called


def test_a_state_root_that_cannot_be_made_is_refused(assay: Assay, slurm: Sbatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = assay(
        "lab", "slurm", "sbatch", "--server", "unix:/x/s", "--state-root", tmp_path / "file" / "jobs"
    )
    assert ended.code == 8
    assert not slurm.was_called


def test_a_token_file_that_others_may_read_is_refused(
    assay: Assay, slurm: Sbatch, tmp_path: Path, token_file: Path
) -> None:
    token_file.chmod(0o640)
    words = ("--join", "127.0.0.1:9", "--token-file", token_file, "--state-root", tmp_path / "jobs")
    ended = assay("lab", "slurm", "sbatch", *words)
    assert ended.code == 2
    assert f"chmod 600 {token_file}" in ended.stderr
    assert TOKEN not in ended.stderr
    assert not slurm.was_called


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ((), "no server is named"),
        (("--join", "lab:7171"), "agents need a join token"),
        (("--server", "lab"), "'lab' is not an address"),
        (("--server", "unix:/x/s", "--token-file", "t"), "there is nothing to join"),
        (("--server", "unix:/x/s", "--sbatch", "wrap=x"), "'wrap' is not passed on"),
        (
            ("--server", "unix:/x/s", "--time", "1\n#SBATCH --uid=0"),
            "characters that no value of sbatch needs",
        ),
        (("--server", "unix:/x/s", "--agent", " "), "it is empty"),
        (("--server", "unix:/x/s", "--agent", "'"), "--agent"),
    ],
)
def test_what_cannot_be_is_a_usage_error(
    assay: Assay, slurm: Sbatch, tmp_path: Path, words: tuple[str, ...], cause: str
) -> None:
    ended = assay("lab", "slurm", "sbatch", "--state-root", tmp_path / "jobs", *words)
    assert ended.code == 2, ended.stderr
    assert cause in ended.stderr
    assert not slurm.was_called
