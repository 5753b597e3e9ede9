"""The files of a release: sdist, wheel and their checksums, the same bytes from the same commit.

The times in the archives are that of the commit (SOURCE_DATE_EPOCH, reproducible-builds.org).
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHECKSUMS = "SHA256SUMS"


class ReleaseError(Exception):
    """The release cannot be made; says why and what to do."""


def version(root: Path = ROOT) -> str:
    """The version of the project. Raises ReleaseError where CITATION.cff or the changelog has another."""
    of_project = str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])
    of_citation = str(yaml.safe_load((root / "CITATION.cff").read_text())["version"])
    if of_citation != of_project:
        raise ReleaseError(f"CITATION.cff says {of_citation}, pyproject.toml {of_project}: make them equal")
    headings = [line for line in (root / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    if not headings or headings[0].split()[1] not in {of_project, "Unreleased"}:
        raise ReleaseError(f"the first heading of CHANGELOG.md is neither {of_project} nor Unreleased")
    return of_project


def build(folder: Path, root: Path = ROOT) -> tuple[Path, Path]:
    """The sdist and the wheel in ``folder``, and their checksums in ``SHA256SUMS``.

    Raises ReleaseError where the wheel made from the sdist is another than that from the checkout.
    """
    number = version(root)
    sdist, wheel = folder / f"assay_gpu-{number}.tar.gz", folder / f"assay_gpu-{number}-py3-none-any.whl"
    seconds = _commit_seconds(root)
    _hatchling(root, folder, seconds, "sdist", "wheel")
    with tempfile.TemporaryDirectory(prefix="assay-release-") as scratch:
        with tarfile.open(sdist) as archive:
            archive.extractall(scratch, filter="data")
        again = Path(scratch) / "dist"
        _hatchling(Path(scratch) / f"assay_gpu-{number}", again, seconds, "wheel")
        if (again / wheel.name).read_bytes() != wheel.read_bytes():
            raise ReleaseError(f"{wheel.name} from the sdist differs: a file is missing in {sdist.name}")
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in (sdist, wheel)]
    (folder / CHECKSUMS).write_text("".join(lines))
    return sdist, wheel


def check_committed(root: Path = ROOT) -> None:
    """Raises ReleaseError where the checkout has changes that no commit has."""
    if changed := _git(root, "status", "--porcelain"):
        raise ReleaseError(f"the checkout has changes that no commit has: commit them first\n{changed}")


def _commit_seconds(root: Path) -> str:
    return _git(root, "log", "-1", "--format=%ct")


def _git(root: Path, *command: str) -> str:
    done = subprocess.run(("git", "-C", str(root), *command), check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _hatchling(project: Path, folder: Path, commit_seconds: str, *targets: str) -> None:
    chosen = [part for target in targets for part in ("-t", target)]
    done = subprocess.run(
        (sys.executable, "-m", "hatchling", "build", *chosen, "-d", str(folder)),
        cwd=project,
        check=False,
        capture_output=True,
        text=True,
        env={"SOURCE_DATE_EPOCH": commit_seconds, "PATH": "/usr/bin:/bin"},
    )
    if done.returncode:
        raise ReleaseError(f"hatchling build failed:\n{done.stderr.strip()[-2000:]}")
