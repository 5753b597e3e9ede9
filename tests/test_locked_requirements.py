"""Every extra can be installed by hash, in the versions that all of us use."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "requirements"
EXTRAS: list[str] = sorted(
    tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
)
LOCKED = ["base", "build", "dev", *EXTRAS]
_ENTRY = re.compile(r"([a-z0-9-]+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)")


def locked(name: str) -> dict[str, str]:
    """Versions by package; each line must be a pinned package with hashes, and nothing else."""
    text = (FOLDER / f"{name}.txt").read_text().replace(" \\\n   ", "")
    entries = [_ENTRY.fullmatch(line) for line in text.splitlines()]
    assert all(entries), [line for line in text.splitlines() if not _ENTRY.fullmatch(line)][:3]
    return {entry[1]: entry[2] for entry in entries if entry}


@cache
def pinned() -> dict[str, str]:
    lines = (FOLDER / "constraints.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines)  # type: ignore[misc]


@pytest.mark.parametrize("name", LOCKED)
def test_each_package_has_a_version_and_hashes(name: str) -> None:
    packages = locked(name)
    assert packages
    assert packages.items() <= pinned().items()


def test_the_constraints_pin_what_is_locked_and_nothing_else() -> None:
    assert set().union(*map(locked, LOCKED)) == pinned().keys()


@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_everything_that_an_extra_needs_is_locked(extra: str) -> None:
    assert closure(f"assay-gpu[{extra}]" if extra else "assay-gpu") <= locked(extra or "base").keys()


def test_what_developers_install_is_every_extra_but_the_large_one() -> None:
    together = set().union(*(locked(extra) for extra in EXTRAS if extra != "ncu-report"))
    assert together | locked("build").keys() <= locked("dev").keys()


def test_no_file_names_an_index() -> None:
    for path in FOLDER.glob("*.txt"):
        text = path.read_text()
        assert "://" not in text and "--index" not in text and "--find-links" not in text, path.name


def closure(wanted: str) -> set[str]:
    """What is needed here for a requirement, by the metadata of what is installed."""
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    open_ = [Requirement(wanted)]
    while open_:
        asked = open_.pop()
        for extra in ("", *asked.extras):
            name = canonicalize_name(asked.name)
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            found.add(name)
            open_ += [each for each in _needs(name) if each.marker is None or _holds(each, extra)]
    return found - {"assay-gpu"}


def _needs(name: str) -> list[Requirement]:
    try:
        return [Requirement(text) for text in importlib.metadata.requires(name) or ()]
    except importlib.metadata.PackageNotFoundError:
        return []  # ncu-report, which needs nothing, is not among the developers' packages


def _holds(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is not None and requirement.marker.evaluate({"extra": extra})
