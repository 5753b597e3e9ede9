"""Put Python packages that only tests of services need into a cache folder; no environment is changed.

    python3 tests/services/packages.py --cache DIR --requirements requirements/chart.txt

They lie in DIR/packages/NAME, where NAME is that of the file. What is there already is left as it is. If they
cannot be downloaded, the reason is printed and kept beside, and the exit status is 0: the tests are skipped
with that reason. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_STAMP, _REASON = "assay-stamp", "assay-unavailable"
_SECONDS = 600


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch them if they are missing; 0 also where they cannot be had."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="the folder that holds them")
    parser.add_argument("--requirements", type=Path, required=True, help="a file of pip with exact versions")
    given = parser.parse_args(arguments)
    folder = folder_of(given.cache.absolute(), given.requirements.stem)
    wanted = given.requirements.read_text()
    if not _is_whole(folder, wanted):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        reason = _installed(folder, given.requirements)
        (folder / (_REASON if reason else _STAMP)).write_text(reason or wanted)
    print(f"services: {why_not(folder) or folder}")
    return 0


def folder_of(cache: Path, name: str) -> Path:
    """Where the packages of a file of requirements are."""
    return cache / "packages" / name


def why_not(folder: Path) -> str:
    """Why the packages are not there; "" if they are."""
    if (folder / _STAMP).is_file():
        return ""
    try:
        return (folder / _REASON).read_text()
    except OSError:
        return f"nothing was put into {folder}"


def import_from(folder: Path) -> None:
    """Let this process import them, after its own packages."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _is_whole(folder: Path, wanted: str) -> bool:
    return not why_not(folder) and (folder / _STAMP).read_text() == wanted


def _installed(folder: Path, requirements: Path) -> str:
    """Have pip put them there; returns why that failed, or ""."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--target", str(folder), "--requirement", str(requirements)]
    environment = {**os.environ, "PIP_DEFAULT_TIMEOUT": "60"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"pip: {error}"
    lines = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else f"pip: {lines[-1] if lines else done.returncode}"


if __name__ == "__main__":
    sys.exit(main())
