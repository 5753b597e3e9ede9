"""What the doctor and the finding of the tracer say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from assay_agent.doctor.tracer import tracer_check
from assay_agent.tracer import build
from assay_agent.tracer.build import GENERATIONS, TracerBuildError, compile_c, find_tracer, header_folders


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("ASSAY_TRACER", raising=False)
    monkeypatch.setenv("ASSAY_TRACER_CACHE", str(tmp_path))
    return tmp_path


def test_where_nothing_is_built_it_says_how_to_build(cache: Path) -> None:
    check = tracer_check()
    assert (check.state, check.found) == ("note", "not built")
    assert "python -m assay_agent.tracer.build" in check.remedy
    (cache / "unavailable.json").write_text(json.dumps({"cu13": "no index"}))
    assert tracer_check().found == "not built (cu13: no index)"


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    assert tracer_check().found == "not built (there is no C compiler no-such-compiler)"


def test_a_given_tracer_is_used_and_a_wrong_one_is_named(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_TRACER", str(cache / "mine.so"))
    assert "which is not there" in tracer_check().found and find_tracer() is None
    (cache / "mine.so").touch()
    assert find_tracer() == cache / "mine.so" and tracer_check().state == "ok"


def test_a_build_of_other_sources_is_not_taken(cache: Path) -> None:
    (cache / "libassay-tracer-cu13-000000000000.so").touch()
    assert find_tracer() is None


def test_missing_headers_and_compilers_are_errors_with_remedies(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TracerBuildError, match="headers were not fetched; run: python -m"):
        header_folders(GENERATIONS["13"])
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(TracerBuildError, match=r"no such C compiler; install a C compiler"):
        compile_c([cache / "a.c"], cache / "a", [], ())


def test_what_is_lacking_ends_a_build_in_1_unless_it_may_lack_and_is_kept_for_the_doctor(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    for generation in GENERATIONS.values():
        (cache / "headers" / generation.name).mkdir(parents=True)
    assert build.main(["--may-lack"]) == 0
    assert "tracer: no cu13: no-such-compiler: there is no such C compiler" in capsys.readouterr().out
    assert build.main([]) == 1
    assert "cu12: no-such-compiler" in tracer_check().found


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_warning_is_an_error(cache: Path) -> None:
    (cache / "a.c").write_text("int main(int count, char **words) { int unused; return 0; }")
    with pytest.raises(TracerBuildError, match=r"a\.c: it does not compile: .*unused"):
        compile_c([cache / "a.c"], cache / "a", [], ())
