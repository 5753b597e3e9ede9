"""What is taken along to a box that can fetch nothing."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.gpu import carry

ROOT = Path(__file__).resolve().parents[2]

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def needed(name: str, extras: frozenset[str] = frozenset()) -> set[str]:
    """What a distribution of this environment needs, all the way down, in the spelling of indices."""
    requirements = pytest.importorskip("pip._vendor.packaging.requirements")
    found, waiting = set[str](), [(name, extras)]
    while waiting:
        of, with_extras = waiting.pop()
        for text in importlib.metadata.requires(of) or ():
            requirement = requirements.Requirement(text)
            marker = requirement.marker
            wanted = marker is None or any(marker.evaluate({"extra": e}) for e in (with_extras or {""}))
            spelled = requirement.name.lower().replace("_", "-")
            if wanted and spelled not in found:
                found.add(spelled)
                if spelled != "assay-gpu":
                    try:
                        importlib.metadata.distribution(spelled)
                    except importlib.metadata.PackageNotFoundError:
                        continue  # of another platform or Python
                waiting.append((spelled, frozenset(requirement.extras)))
    return found - {"assay-gpu"}


def test_all_that_assay_needs_is_carried_or_asked_of_the_box() -> None:
    have = {name.lower().replace("_", "-") for name in (*carry.CARRIED, *carry.ON_THE_BOX.values())}
    everything = needed("assay-gpu", frozenset({"agent", "analysis", "server"}))
    # SQLAlchemy wants greenlet for asyncio alone; the others are scikit-learn's, which the box has.
    assert everything - have <= {"greenlet", "narwhals", "cloudpickle", *carry.LEFT_BEHIND}
    assert {"grpcio", "pydantic-core", "alembic"} <= everything


def test_every_carried_package_has_a_version() -> None:
    assert "grpcio==1.85.1" in carry.pinned(carry.CARRIED)
    assert len(carry.pinned(carry.CARRIED)) == len(carry.CARRIED)
    with pytest.raises(carry.CannotCarryError, match="no version of nosuch"):
        carry.pinned(["nosuch"])


def test_the_architectures_of_named_gpus_stand_in_the_page() -> None:
    page = (ROOT / "docs" / "hardware.md").read_text()
    lines = {line for line in page.splitlines() if line.startswith("|")}
    for gpu, architecture in carry.ARCHITECTURES.items():
        assert any(gpu in line and f"| `{architecture}` |" in line for line in lines), gpu
    assert {"V100": "sm_70", "RTX 2060": "sm_75", "RTX 3070": "sm_86"}.items() <= carry.ARCHITECTURES.items()


def carried(folder: Path, python: str = HERE) -> Path:
    """What 'pack' makes, with one package that is ours."""
    folder.mkdir(parents=True)
    (folder.parent / "carried_module.py").write_text("value = 7\n")
    carry._archive(folder / "packages.tar.xz", folder.parent, ["carried_module.py"])
    (folder / "manifest.json").write_text(json.dumps({"python": python}))
    return folder


def test_wheels_are_unpacked_to_be_imported(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    with zipfile.ZipFile(tmp_path / "wheels" / "w-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("carried_module.py", "value = 7\n")
        wheel.writestr("w-1.data/purelib/other_module.py", "value = 8\n")
    carry.unpack(tmp_path / "wheels", tmp_path / "site")
    (tmp_path / "c").mkdir()
    carry.name_ourselves(tmp_path / "site")
    made = carry.environment({"PATH": os.defpath, "PYTHONPATH": "/own"}, tmp_path / "c", tmp_path / "site")
    code = (
        "import carried_module, other_module, assay_agent, tests.gpu, importlib.metadata as metadata; "
        "print(other_module.value, metadata.version('assay-gpu'), "
        "metadata.distribution('assay-gpu').locate_file(''))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=made, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert done.stdout == f"8 {release} {tmp_path / 'site'}\n"
    assert made["PYTHONPATH"].endswith(":/own")
    assert "ASSAY_TRACER" not in made
    (tmp_path / "c" / "libassay-tracer.so").touch()
    made = carry.environment({}, tmp_path / "c", tmp_path / "site")
    assert made["ASSAY_TRACER"] == str(tmp_path / "c" / "libassay-tracer.so")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    script = str(ROOT / "tests" / "gpu" / "carry.py")
    return subprocess.run([sys.executable, script, *words], capture_output=True, text=True, check=False)


def test_the_proof_is_run_with_what_was_carried(tmp_path: Path) -> None:
    done = run("run", "--carried", str(carried(tmp_path / "c")), "--help")
    assert done.returncode == 0, done.stderr
    assert "--time-limit SECONDS" in done.stdout


def test_a_folder_that_was_copied_in_part_is_named(tmp_path: Path) -> None:
    (carried(tmp_path / "c") / "packages.tar.xz").unlink()
    done = run("run", "--carried", str(tmp_path / "c"), "--help")
    assert (done.returncode, "has no packages.tar.xz: pack it again" in done.stderr) == (77, True)


def test_another_python_and_another_folder_are_refused(tmp_path: Path) -> None:
    done = run("run", "--carried", str(carried(tmp_path / "c", "3.5")), "--help")
    assert (done.returncode, f"and {sys.executable} is {HERE}" in done.stderr) == (77, True)
    (tmp_path / "own").mkdir()
    done = run("pack", "--to", str(tmp_path / "own"))
    assert (done.returncode, "was not made by carry.py" in done.stderr) == (77, True)
    assert (tmp_path / "own").is_dir()


def test_what_is_made_there_stays_out_of_the_results(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "saxpy").touch(0o600)
    carry._archive(tmp_path / "c" / "programs.tar.xz", tmp_path, ["saxpy"])
    words = ["--work", str(tmp_path / "t" / "work"), "--programs", str(tmp_path / "t" / "programs")]
    assert carry._added(["--part", "cuda"], tmp_path / "c", tmp_path / "t") == words
    assert os.access(tmp_path / "t" / "programs" / "saxpy", os.X_OK)
    assert carry._added(["--work=x", "--programs", "y"], tmp_path / "c", tmp_path / "t") == []


@pytest.mark.parametrize(
    ("needed", "library", "left_out"),
    [
        ("2.34", ("glibc", "2.31"), True),
        ("2.17", ("glibc", "2.31"), False),
        ("2.9", ("glibc", "2.31"), False),
        ("", ("glibc", "2.31"), False),
        ("2.34", ("", ""), False),
    ],
)
def test_workloads_that_need_a_newer_glibc_are_named_before_they_run(
    needed: str, library: tuple[str, str], left_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carry.platform, "libc_ver", lambda: library)
    said = "they need glibc 2.34, and this box has 2.31; pack them where Zig can be downloaded"
    assert carry._workloads_fault({"workloads_need_glibc": needed}) == (said if left_out else "")


@pytest.mark.processes
def test_the_proof_goes_on_without_workloads_that_do_not_start(tmp_path: Path) -> None:
    kit = carried(tmp_path / "c")
    (kit / "manifest.json").write_text(json.dumps({"python": HERE, "workloads_need_glibc": "99.1"}))
    done = run("run", "--carried", str(kit), "--help")
    assert (done.returncode, "--time-limit SECONDS" in done.stdout) == (0, True)
    assert done.stderr.startswith("carry: the carried workloads are left out: they need glibc 99.1, and")


def test_folders_are_those_of_the_caller_wherever_the_proof_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/tmp")
    given = ["--out", "o", "--part", "cuda", "--work=w", "--first", "3", "--out=/x"]
    assert carry._absolute(given) == [
        "--out",
        "/tmp/o",
        "--part",
        "cuda",
        "--work=/tmp/w",
        "--first",
        "3",
        "--out=/x",
    ]


@pytest.mark.processes
def test_the_kit_rehearses_without_a_checkout(tmp_path: Path) -> None:
    """Its own copy of the script and the project, in a folder far from this one."""
    kit = carried(tmp_path / "kit")
    carry._archive(kit / "project.tar.xz", ROOT, carry._TAKEN)
    shutil.copyfile(carry.__file__, kit / "carry.py")
    assert (kit / "project.tar.xz").stat().st_size < 4_000_000
    done = subprocess.run(
        [sys.executable, "kit/carry.py", "run", "--call", "A", "--out", "out", "--time-limit", "16"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    [results] = (tmp_path / "out").iterdir()
    assert {path.name for path in results.iterdir()} == {"steps.json", "first-call.tar.gz"}
    assert str(ROOT) not in done.stdout
