"""The reference pages name what the programs know, no more and no less."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer

from assay_agent.main import app as agent_app
from assay_client.cli.main import app as assay_app
from assay_client.cli.verb_list import ADMIN, LAB, MODULES
from assay_sampling.launches.alignment import match_flags
from assay_server.cli.program import program as server_app
from assay_server.limits import DEFAULT_LIMITS, built_in

ROOT = Path(__file__).resolve().parents[2]


def rows(page: str) -> dict[str, list[str]]:
    """The cells of each table row that begins with a name in backticks, by that name."""
    found = {}
    for line in (ROOT / "docs" / page).read_text().splitlines():
        if match := re.match(r"\| `([a-z_]+)` \| (.*) \|$", line):
            found[match[1]] = match[2].split(" | ")
    return found


def test_limits_are_those_of_the_program() -> None:
    groups = [getattr(DEFAULT_LIMITS, group.name) for group in dataclasses.fields(DEFAULT_LIMITS)]
    settable = {name: number for group in groups for name, number in dataclasses.asdict(group).items()}
    numbers = {name: f"{number:,}" for name, number in (settable | built_in()).items()}
    assert {name: cells[0] for name, cells in rows("limits.md").items()} == numbers
    assert all(cells[1] for cells in rows("limits.md").values())
    introduction = (ROOT / "docs" / "limits.md").read_text().partition("\n## ")[0]
    named = {match[1] for match in re.finditer(r"`([a-z_]+)`", introduction)}
    assert named == set(settable), "the page says first which of them have other numbers on other servers"


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


def test_the_index_lists_every_page_in_one_place() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")} - {"README.md"}
    listed = Counter(re.findall(r"^\| \[[^]]+\]\(([\w/-]+\.md)\) \|", index, re.MULTILINE))
    assert pages - set(listed) == {"tutorial.md"}, "the tutorial is named above the tables"
    assert [page for page, times in listed.items() if times > 1] == []
    assert "(docs/README.md)" in (ROOT / "README.md").read_text()


def commands(page: str) -> list[list[str]]:
    """The words of every command of our programs in a page's code: a pipe, a redirection or & ends them."""
    found = []
    for line in (ROOT / page).read_text().splitlines():
        if re.match(r"^(    )?assay(-\w+)? ", line):
            for command in re.split(r"&&?|\||>", line):
                words = shlex.split(command.partition(" < ")[0], comments=True)
                if words and words[0].startswith("assay"):
                    found.append(words)
    return found


HOW_TO = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "how-to").glob("*.md"))


@pytest.mark.parametrize(
    "page", ["README.md", "docs/commands.md", "docs/tutorial.md", "docs/recordings.md", *HOW_TO]
)
def test_every_command_of_a_page_is_one_that_the_programs_take(page: str) -> None:
    programs = {"assay": assay_app, "assay-agent": agent_app, "assay-server": server_app}
    shown = commands(page)
    assert len(shown) >= 2
    for program, *words in shown:
        check(typer.main.get_command(programs[program]), words)


def check(command: Any, words: list[str], parent: Any = None) -> None:
    """Parse a command as far as possible, and never run it.

    An option that is not there, a value that is wrong, or an argument that is missing raises.
    """
    if hasattr(command, "resolve_command") and words[0].startswith("-"):
        # These act as soon as they are parsed.
        assert words[0] in {name for parameter in command.params for name in parameter.opts}
        return
    context = command.make_context(command.name, words, parent=parent)
    if hasattr(command, "resolve_command"):
        rest = [*context._protected_args, *context.args]
        if rest:
            _, inner, inner_words = command.resolve_command(context, rest)
            check(inner, inner_words, context)


def test_the_page_of_commands_shows_every_verb() -> None:
    shown = {" ".join(words[:size]) for words in commands("docs/commands.md") for size in (2, 3)}
    grouped = [f"{group.folder} {verb}" for group in (LAB, ADMIN) for verb in group.verbs]
    assert [verb for verb in [*MODULES, *grouped] if f"assay {verb}" not in shown] == []


def test_the_readme_is_short_and_names_targets_that_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 75
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)", readme))
    assert {"demo", "test", "help"} <= named <= targets


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
