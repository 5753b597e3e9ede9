"""Files of submitters on a box: refused without the policy's word, confined with it, and gone afterwards."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from assay_agent.execution.confinement.command import BundledCommand
from assay_agent.execution.confinement.leftovers import remove_strange, require_plain
from assay_agent.execution.confinement.means import Means, find_means
from assay_agent.execution.confinement.view import View
from assay_agent.execution.errors import ProfilerError
from assay_agent.policy.file import read_policy
from assay_agent.policy.gate import Gate
from assay_core.records.attempt import AttemptKey
from assay_core.records.upload import Bundle
from assay_core.records.work import CommandSource, Work
from assay_sampling.errors import InputError
from assay_sampling.running.failures import FailureClass

BUNDLE = Bundle("a" * 64, 4096, 2)
HAS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a program as another user")


def work_with(**changes: object) -> Work:
    given = {"argv": ("./run.sh",), "bundle": BUNDLE, **changes}
    return Work(
        key=AttemptKey("c-1.0000", 0, 1, 1), campaign_id="c-1", workload="w", device_kind="V100",
        level="light", profiler="bare", command=CommandSource(**given),  # type: ignore[arg-type]
    )  # fmt: skip


def gate_of(tmp_path: Path, table: str) -> Gate:
    path = tmp_path / "policy.toml"
    path.write_text(f"version = 1\nallow_root = true\n{table}")
    path.chmod(0o600)
    return Gate(read_policy(path), server_is_ours=False)


def refusal(gate: Gate, work: Work) -> str:
    with pytest.raises(ProfilerError) as refused:
        gate.admit(work)
    assert refused.value.failure_class is FailureClass.REFUSED_BY_POLICY
    return refused.value.cause


def test_bundles_are_off_unless_the_policy_enables_them(tmp_path: Path) -> None:
    """Also where the server is this user's own, and where a rule allows any program."""
    assert "no policy file" in refusal(Gate(None, server_is_ours=True), work_with())
    every = gate_of(tmp_path, '[[allow]]\nprogram = "/**"\n')
    assert "no table [bundles]" in refusal(every, work_with()) and not every.runs_bundles


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ('run_as = "nobody-of-this-name"', "there is no user"),
        ('run_as = "root"', "it must be another one"),
        ('bubblewrap = "/nowhere/bwrap"', "bwrap is not installed"),
    ],
)
def test_without_a_way_to_confine_them_they_are_refused_with_the_reason(
    table: str, why: str, tmp_path: Path
) -> None:
    gate = gate_of(tmp_path, f"[bundles]\n{table}\n")
    assert not gate.runs_bundles
    assert why in refusal(gate, work_with())


@pytest.mark.parametrize(
    "table", ["", 'run_as = "nobody"\nbubblewrap = true', "bubblewrap = false", 'readable = ["x"]']
)
def test_a_policy_names_exactly_one_way(table: str, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        gate_of(tmp_path, f"[bundles]\n{table}\n")


@HAS_ROOT
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"argv": ("-o",)}, "option of the profiler"),
        ({"argv": ()}, "names no program"),
        ({"argv": ("./a", "\0")}, "null character"),
        ({"working_directory": "/etc"}, "runs there"),
        ({"environment": {"LD_PRELOAD": "./evil.so"}}, "loaders and tools"),
        ({"environment": {"A=B": "x"}}, "not the name"),
        ({"kineto_file": "../../x.json"}, "Kineto file"),
        ({"bundle": Bundle("a" * 64, 4097, 2)}, "allows 4,096"),
    ],
)
def test_what_would_reach_beyond_the_confinement_is_refused(
    changes: dict[str, object], why: str, tmp_path: Path
) -> None:
    gate = gate_of(tmp_path, '[bundles]\nrun_as = "nobody"\nmost_bytes = 4096\n')
    assert gate.runs_bundles
    assert why in refusal(gate, work_with(**changes))
    admitted = gate.admit(work_with(environment={"OMP_NUM_THREADS": "2"})).command
    assert isinstance(admitted, BundledCommand) and admitted.means.user == "nobody"


@pytest.fixture(scope="module")
def nobody() -> Means:
    found = find_means("nobody", bubblewrap=False)
    if isinstance(found, str):
        pytest.skip(found)
    return found


def run(
    means: Means, folder: Path, script: str, *, whole_etc: bool = False
) -> subprocess.CompletedProcess[str]:
    for name in ("work", "stage"):
        (folder / name).mkdir(exist_ok=True)
    if means.owner is not None:
        os.chown(folder / "work", *means.owner)
    view = View(
        readable=("/etc",) if whole_etc else (), writable=(str(folder / "work"),), hidden=(str(folder),)
    )
    command = means.command(["/bin/sh", "-c", script], view, folder / "work", folder / "stage")
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@HAS_ROOT
def test_a_confined_program_has_no_rights_and_ends_as_it_ends(nobody: Means, tmp_path: Path) -> None:
    done = run(
        nobody, tmp_path, "grep -E '^(Cap(Prm|Eff|Bnd)|NoNewPrivs|Groups)' /proc/self/status; id -u; exit 7"
    )
    assert done.returncode == 7
    said = done.stdout.split()
    assert said.count("0" * 16) == 3 and said[-1] == "65534" and "NoNewPrivs:" in said
    assert said[said.index("NoNewPrivs:") + 1] == "1" and said[said.index("Groups:") + 1] == "CapPrm:"
    assert run(nobody, tmp_path, "kill -9 $$").returncode == -9
    assert run(nobody, tmp_path, "cat /etc/shadow /etc/hostname", whole_etc=True).returncode != 0
    assert run(nobody, tmp_path, "exec ./missing").returncode == 127


@HAS_ROOT
def test_nothing_is_shared_with_the_next_program_or_the_box(nobody: Means, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    left = run(
        nobody, tmp_path,
        "echo x > /tmp/left; echo x > /dev/shm/left; echo x > kept; (setsid sleep 3600 &); ls /dev/shm",
    )  # fmt: skip
    assert left.stdout == "left\n"
    seen = run(nobody, tmp_path, f"ls -A /tmp /dev/shm {tmp_path}; ls /proc | grep -c '^[0-9]'; cat kept")
    assert "secret" not in seen.stdout and "left" not in seen.stdout
    # It, the shell of the pipe, and process 1; not the sleeper, nor the box's processes.
    assert int(seen.stdout.split()[-2]) <= 5 and seen.stdout.split()[-1] == "x"
    for path in ("/usr/x", "/etc/x", f"{tmp_path}/x", "/x", "/sys/x"):
        assert run(nobody, tmp_path, f"touch {path}").returncode != 0
        assert not Path(path).exists()


def test_links_and_pipes_are_taken_away_before_the_agent_reads(tmp_path: Path) -> None:
    (tmp_path / "report").symlink_to("/etc/passwd")
    (tmp_path / "folder").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "kept").write_text("x")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "trace").symlink_to("/etc/passwd")
    assert not require_plain(tmp_path / "inside" / "trace", tmp_path)
    assert not require_plain(tmp_path / "folder" / "passwd", tmp_path)
    assert require_plain(tmp_path / "kept", tmp_path) and require_plain(tmp_path / "missing", tmp_path)
    remove_strange(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inside", "kept"]
