"""The Apptainer definition, as far as it can be tried without Apptainer: its sections are valid shell."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

TEXT = (Path(__file__).resolve().parents[2] / "deploy" / "assay-agent.def").read_text()


def sections() -> dict[str, str]:
    """The sections by name; the header as ""."""
    parts = re.split(r"(?m)^%(\w+)\n", TEXT)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def test_every_argument_has_a_default_and_the_base_is_one_of_them() -> None:
    declared = set(re.findall(r"(?m)^\s+(\w+)=", sections()["arguments"]))
    assert set(re.findall(r"\{\{ (\w+) \}\}", TEXT)) == declared == {"BASE", "PACKAGE"}
    assert "From: {{ BASE }}\n" in sections()[""]
    assert "--nv" in sections()[""]


def test_its_sections_are_shell() -> None:
    for name in ("post", "environment", "runscript", "test"):
        subprocess.run(["/bin/sh", "-n"], input=sections()[name], text=True, check=True)


def post(base: str) -> str:
    return sections()["post"].replace("python3 -m venv /opt/assay", "").replace("{{ BASE }}", base)


def test_a_base_by_its_tag_alone_is_refused() -> None:
    script = post("docker.io/library/python:3.11-slim-bookworm")
    done = subprocess.run(["/bin/sh", "-euc", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "name it by its digest, NAME@sha256:DIGEST" in done.stderr


@pytest.mark.parametrize("bound", [False, True])
def test_wheels_that_were_bound_are_installed_without_the_index(tmp_path: Path, bound: bool) -> None:
    program, wheels = tmp_path / "pip", tmp_path / "mnt"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    wheels.mkdir()
    if bound:
        (wheels / "assay_gpu-0.1.0-py3-none-any.whl").touch()
    script = post(f"docker.io/library/python@sha256:{'0' * 64}").replace("/opt/assay/bin/pip", str(program))
    script = script.replace("/mnt", str(wheels)).replace("{{ PACKAGE }}", "assay-gpu[agent]")
    done = subprocess.run(["/bin/sh", "-euc", script], capture_output=True, text=True, check=True)
    offline = ["--no-index", "--find-links", str(wheels)] if bound else []
    assert done.stdout.splitlines() == ["install", "--no-cache-dir", *offline, "assay-gpu[agent]"]


def test_the_agent_takes_the_place_of_the_run_script_and_gets_its_words(tmp_path: Path) -> None:
    program = tmp_path / "assay-agent"
    program.write_text('#!/bin/sh\necho "$$"\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    script = sections()["runscript"].replace("/opt/assay/bin/assay-agent", str(program))
    words = ["slurm-job", "--state-root", "/a b/$(id)"]
    with subprocess.Popen(
        ["/bin/sh", "-c", script, "runscript", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        told, _ = process.communicate(timeout=60)
        assert told.splitlines() == [str(process.pid), *words]
