"""Docstrings and comments cite pages and sections that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_CITED = re.compile(r"\bdocs/([\w/-]+\.md)(?:,\s+\"([^\"]+)\")?")


def cited() -> Iterator[tuple[Path, Path, str]]:
    """Each module of ours with a page that it cites, and the section; "" for the whole page."""
    for package in ("protos", "sampling", "agent", "server", "client"):
        for source in (ROOT / package).rglob("*.py"):
            for page, section in _CITED.findall(source.read_text()):
                yield source, ROOT / "docs" / page, " ".join(section.split())


def test_cited_pages_and_sections_exist() -> None:
    found = list(cited())
    assert len(found) > 20
    for source, page, section in found:
        assert page.is_file(), f"{source}: there is no {page.relative_to(ROOT)}"
        headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
        assert section in {"", *headings}, f"{source}: {page.relative_to(ROOT)} has no section '{section}'"
