"""Make a release into a folder, and type the README's commands in an environment with nothing but it.

    python -m tests.release --output dist

The environment holds the packages of ``requirements/all.txt`` and the wheel. There the demo runs, and every
command of the README's three users, from an empty folder. Ends with 1 where one of them fails. Then makes the
fixture of this version, unless there is one (``tests.release.fixtures``).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.release.building import CHECKSUMS, ROOT, ReleaseError, build, check_committed, version
from tests.release.fixtures import FIXTURES, make_fixture
from tests.support.readme import typed_commands
from tests.support.shell import typed_in_bash

_SECONDS = 900


def main(arguments: list[str]) -> int:
    """Build, check and say what was made; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--uncommitted", action="store_true", help="also with changes that no commit has")
    options = parser.parse_args(arguments)
    try:
        if not options.uncommitted:
            check_committed()
        sdist, wheel = build(options.output.resolve())
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{sdist}\n{wheel}\n{sdist.parent / CHECKSUMS}")
    with tempfile.TemporaryDirectory(prefix="assay-") as scratch:
        programs = _environment(Path(scratch) / "environment", wheel)
        for name, script in {"demo": "assay demo --out demo", "README": typed_commands()}.items():
            code, shown = _typed(script, Path(scratch) / name, programs)
            if code:
                print(f"{shown[-6000:]}\nerror: {name}: ended with {code}", file=sys.stderr)
                return 1
            print(f"{name}: every command ends well from the wheel alone")
    _keep_fixture(version())
    return 0


def _keep_fixture(number: str) -> None:
    """What this release keeps and sends, for the tests of later ones."""
    fixture = FIXTURES / number
    if fixture.exists():
        return
    make_fixture(fixture, number)
    print(f"{fixture}: what {number} keeps and sends; commit it after the tag: later releases must open it")


def _environment(folder: Path, wheel: Path) -> Path:
    """A new environment with the wheel and what ``all`` needs; where its programs are."""
    subprocess.run((sys.executable, "-m", "venv", str(folder)), check=True)
    pip = (str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    subprocess.run((*pip, "--require-hashes", "--requirement", "requirements/all.txt"), check=True, cwd=ROOT)
    subprocess.run((*pip, "--no-deps", str(wheel)), check=True, cwd=folder)
    return folder / "bin"


def _typed(script: str, folder: Path, programs: Path) -> tuple[int, str]:
    folder.mkdir()
    with tempfile.TemporaryDirectory(prefix="assay-") as sockets:
        places = dict.fromkeys(("TMPDIR", "XDG_RUNTIME_DIR"), sockets)
        return typed_in_bash(script, folder, _SECONDS, programs=programs, HOME=str(folder), **places)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
