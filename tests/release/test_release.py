"""A release holds the packages, the pages and the campaigns, and nothing that is not in a commit."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.release.building import CHECKSUMS, ROOT, ReleaseError, build, check_committed, version


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel of this commit, built once."""
    return build(tmp_path_factory.mktemp("release"))


def test_the_wheel_is_made_of_the_sdist_and_holds_what_users_run(release: tuple[Path, Path]) -> None:
    sdist, wheel = release
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if "dist-info" not in name} == {
        "assay", "assay_agent", "assay_client", "assay_core", "assay_protos", "assay_report",
        "assay_sampling", "assay_server", "assay_virtual",
    }  # fmt: skip
    assert "assay_client/docs/tutorial.md" in names
    assert any(name.startswith("assay_client/campaigns/") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    with tarfile.open(sdist) as archive:
        folders = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {"tests", "docs", "CITATION.cff", "CHANGELOG.md", "requirements"} <= folders
    assert not {".git", ".venv", ".ci", "demo", "build"} & folders
    sums = dict(line.split("  ")[::-1] for line in (wheel.parent / CHECKSUMS).read_text().splitlines())
    assert sums == {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in (sdist, wheel)}


def test_two_builds_of_one_commit_are_equal(release: tuple[Path, Path], tmp_path: Path) -> None:
    again = build(tmp_path)
    assert [file.read_bytes() for file in release] == [file.read_bytes() for file in again]


def _copies(folder: Path) -> None:
    for name in ("pyproject.toml", "CITATION.cff", "CHANGELOG.md"):
        shutil.copy(ROOT / name, folder / name)


def test_a_citation_of_another_version_is_refused(tmp_path: Path) -> None:
    _copies(tmp_path)
    assert version(tmp_path) == version()
    citation = (tmp_path / "CITATION.cff").read_text().replace(f"version: {version()}", "version: 9.9.9")
    (tmp_path / "CITATION.cff").write_text(citation)
    with pytest.raises(ReleaseError, match=r"CITATION.cff says 9\.9\.9"):
        version(tmp_path)


def test_a_changelog_of_another_version_is_refused(tmp_path: Path) -> None:
    _copies(tmp_path)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 9.9.9\n")
    with pytest.raises(ReleaseError, match="neither"):
        version(tmp_path)


def test_changes_that_no_commit_has_are_refused(tmp_path: Path) -> None:
    subprocess.run(("git", "init", "-q", str(tmp_path)), check=True)
    check_committed(tmp_path)
    (tmp_path / "note").write_text("not committed")
    with pytest.raises(ReleaseError, match="note"):
        check_committed(tmp_path)


def test_every_paper_of_the_methods_is_cited() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["references"]
    assert all(paper["title"] and paper["authors"] for paper in cited)
    methods = " ".join(paper["notes"] for paper in cited).lower()
    for method in ("pks", "pkp", "sieve", "tbpoint", "stem", "photon", "scale model", "cold start"):
        assert method in methods
