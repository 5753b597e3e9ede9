"""Which glibc the tracer needs: read from its file, kept to by a portable build, told where too new."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay_agent.doctor.tracer import tracer_check
from assay_agent.execution.errors import ProfilerError
from assay_agent.profilers.cupti import require_tracer
from assay_agent.tracer import build, glibc
from assay_agent.tracer.glibc import box_glibc, needed_glibc


def library(path: Path, *versions: str) -> Path:
    """The strings of a library's dynamic table."""
    path.write_bytes(b"\x7fELF\0libc.so.6\0" + b"".join(b"%s\0" % version.encode() for version in versions))
    return path


@pytest.mark.parametrize(
    ("versions", "needed"),
    [
        (["GLIBC_2.2.5", "GLIBC_2.31", "GLIBC_2.4"], (2, 31)),
        (["GLIBC_PRIVATE", "xGLIBC_2.40", "GLIBC_2.17"], (2, 17)),
        ([], (0, 0)),
    ],
)
def test_the_newest_version_that_a_file_names_counts(
    versions: list[str], needed: tuple[int, int], tmp_path: Path
) -> None:
    assert needed_glibc(library(tmp_path / "a.so", *versions)) == needed


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not installed (binutils)")
def test_it_is_what_readelf_says_of_this_python() -> None:
    said = subprocess.run(
        ["readelf", "-V", sys.executable], capture_output=True, text=True, check=True
    ).stdout
    listed = {(int(a), int(b)) for a, b in re.findall(r"Name: GLIBC_(\d+)\.(\d+)", said)}
    assert needed_glibc(Path(sys.executable)) == max(listed, default=(0, 0))
    assert box_glibc() is None or needed_glibc(Path(sys.executable)) <= (box_glibc() or (0, 0))


def test_a_tracer_of_a_newer_system_is_told_instead_of_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer = library(tmp_path / "tracer.so", "GLIBC_2.34")
    monkeypatch.setenv("ASSAY_TRACER", str(tracer))
    monkeypatch.setattr(glibc, "box_glibc", lambda: (2, 31))
    why = f"{tracer} needs glibc 2.34, and this box has 2.31"
    assert (build.find_tracer(), build.why_unavailable()) == (None, why)
    with pytest.raises(ProfilerError, match=re.escape(f"this box has none ({why})")):
        require_tracer()
    assert tracer_check().found == f"not built ({why})"
    monkeypatch.setattr(glibc, "box_glibc", lambda: (2, 34))
    assert build.find_tracer() == tracer


def test_a_portable_build_needs_no_newer_glibc_than_ubuntu_20_04(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is built here, if it is; and a compiler that does not keep to it is noticed."""
    portable = build._library(build.default_cache(), build.GENERATIONS["13"], "portable-")
    if portable.is_file():
        assert (2, 0) < needed_glibc(portable) <= (2, 31)
    monkeypatch.setattr(build, "portable_compiler", lambda cache: ["cc"])
    monkeypatch.setattr(build, "fetch_headers", lambda generation, cache: tmp_path)
    monkeypatch.setattr(build, "_SOURCES", tmp_path)
    (tmp_path / "a.c").write_text("int answer(void) { return 42; }\n")
    monkeypatch.setattr(build, "needed_glibc", lambda path: (2, 34))
    with pytest.raises(
        build.TracerBuildError, match=re.escape("glibc 2.34, and a portable build at most 2.31")
    ):
        build.build(build.GENERATIONS["13"], tmp_path, portable=True)
    monkeypatch.setattr(build, "needed_glibc", lambda path: (2, 30))
    assert build.build(build.GENERATIONS["13"], tmp_path, portable=True).name.startswith(
        "libassay-tracer-portable-cu13-"
    )
