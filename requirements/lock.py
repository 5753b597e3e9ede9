"""Write the pinned versions, and the hashes of their files, for every extra.

    python requirements/lock.py

``constraints.txt`` is the one list of versions: those of this environment, and what it lacks. Each extra has
a file with hashes of its own, made from that list: ``pip install --require-hashes -r server.txt``. uv looks
the hashes up (all files of a release, for every platform); no file names the index that was asked.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PROJECT = FOLDER.parent / "pyproject.toml"
CONSTRAINTS = FOLDER / "constraints.txt"
# The oldest Python has the most packages: later ones need a part of them.
_COMPILE = (
    "pip", "compile", "--quiet", "--no-config", "--no-header", "--no-annotate", "--upgrade",
    "--python-version", "3.11", "--python-platform", "x86_64-unknown-linux-gnu",
)  # fmt: skip


def locked_files() -> Iterator[tuple[str, tuple[str, ...]]]:
    """The name of each file with hashes, and what uv is told to resolve for it."""
    project = str(PROJECT)
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    yield "base", (project,)
    for extra in extras:
        yield extra, (project, "--extra", extra)
    yield "build", ("--group", f"{project}:build")
    # What 'make setup' installs: everything, and the developers' tools.
    yield "dev", (project, "--extra", "all", "--group", f"{project}:dev", "--group", f"{project}:build")


def main() -> None:
    """Write all of them anew."""
    pip = (sys.executable, "-m", "pip", "freeze", "--all", "--exclude-editable")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as here:
        here.write(subprocess.run(pip, check=True, capture_output=True, text=True).stdout)
        here.flush()
        groups = ("--group", f"{PROJECT}:dev", "--group", f"{PROJECT}:build")
        _compile(CONSTRAINTS, str(PROJECT), "--all-extras", *groups, "--constraint", here.name)
    for name, inputs in locked_files():
        path = FOLDER / f"{name}.txt"
        _compile(path, *inputs, "--constraint", str(CONSTRAINTS), "--generate-hashes")


def _compile(path: Path, *options: str) -> None:
    uv = str(Path(sys.executable).parent / "uv")
    subprocess.run(
        (uv, *_COMPILE, *options, "--output-file", str(path)), check=True, stdout=subprocess.DEVNULL
    )


if __name__ == "__main__":
    main()
