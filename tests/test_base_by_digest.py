"""Images are built from a base that is named by its digest, or lies on the machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
DIGEST = "0123456789abcdef" * 4


def checked(base: str) -> subprocess.CompletedProcess[str]:
    program = str(DEPLOY / "image" / "base-by-digest.sh")
    return subprocess.run(["/bin/sh", program, base], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "base",
    [
        f"docker.io/library/python@sha256:{DIGEST}",
        f"registry.example:5000/python:3.11@sha256:{DIGEST}",
        "localhost/assay-tree",
    ],
)
def test_a_digest_or_an_image_of_the_machine_is_taken(base: str) -> None:
    assert checked(base).returncode == 0


@pytest.mark.parametrize(
    "base",
    [
        "docker.io/library/python:3.11-slim-bookworm",
        "python",
        "",
        "python@sha256:0123",
        f"python@sha256:{DIGEST}0",
        "python@sha256:DIGEST",
        f"python@sha256:{DIGEST[:-1]}G",
        "localhost.example/python:3",
    ],
)
def test_a_tag_alone_is_refused_with_what_to_do(base: str) -> None:
    done = checked(base)
    assert done.returncode == 1
    assert f"BASE is '{base}'" in done.stderr and "--build-arg BASE=NAME@sha256:DIGEST" in done.stderr


def test_every_stage_begins_with_the_checked_base() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    stages = re.findall(r"(?m)^FROM (\S+) AS (\S+)$", text)
    assert stages[0] == ("${BASE}", "base")
    names = {name for _, name in stages}
    assert all(source in names for source, _ in stages[1:])
    first = text.partition("FROM ${BASE} AS base\n")[2].partition("\nRUN ")[2]
    assert first.startswith('sh /tmp/base-by-digest.sh "${BASE}"')
