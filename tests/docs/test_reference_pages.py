"""The reference pages name what the programs know, no more and no less."""

from __future__ import annotations

import re
from pathlib import Path

from assay_client.cli.main import VERBS
from assay_sampling.alignment import match_flags
from assay_sampling.failures import FailureClass

ROOT = Path(__file__).resolve().parents[2]


def rows(page: str) -> dict[str, list[str]]:
    """The cells of each table row that begins with a name in backticks, by that name."""
    found = {}
    for line in (ROOT / "docs" / page).read_text().splitlines():
        if match := re.match(r"\| `([a-z_]+)` \| (.*) \|$", line):
            found[match[1]] = match[2].split(" | ")
    return found


def test_failures_are_those_of_the_program() -> None:
    expected = {c.value: [c.meaning, c.remedy, "yes" if c.retryable else "no"] for c in FailureClass}
    assert rows("failures.md") == expected


def test_every_flag_that_the_code_sets_has_its_row() -> None:
    documented = set(rows("validity.md"))
    flagged = set()
    for source in (ROOT / "agent").rglob("*.py"):
        text = source.read_text()
        if "ValidityFlag" in text:
            flagged |= set(re.findall(r"ValidityFlag\(\s*\"([a-z_]+)\"", text))
            flagged |= set(re.findall(r"re\.compile\(.*\), \"([a-z_]+)\"\)", text))
    assert flagged
    assert flagged <= documented
    assert {*match_flags("name_block"), *match_flags("position")} <= documented


def test_every_page_stands_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages - set(re.findall(r"\]\(([\w-]+\.md)\)", index)) == set()
    assert "(docs/README.md)" in (ROOT / "README.md").read_text()


def test_the_readme_shows_every_verb_and_names_targets_that_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [verb for verb in VERBS if not re.search(rf"\bassay {verb}\b", readme)] == []
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", readme))
    assert {"demo", "test", "help"} <= named <= targets


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
