"""``assay docs``: the pages are there wherever the programs are, and nothing points to where they are not."""

from __future__ import annotations

import ast
import io
import json
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from assay_client import pages as pages_module
from assay_client.cli.output import can_draw
from assay_client.cli.reporters.page import render_page
from assay_client.pages import find_page, folder, pages
from assay_sampling.errors import StorageError

Assay = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("sampling", "protos/assay_core", "agent", "server", "client")


def drawn(text: str, width: int = 80, **settings: Any) -> str:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, highlight=False, **settings)
    render_page(text, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def words(text: str) -> str:
    return " ".join(text.split())


def test_every_page_and_campaign_is_shown() -> None:
    documents = {path.stem for path in (ROOT / "docs").rglob("*.md")} - {"README"} | {"methods"}
    campaigns = {path.name for path in (ROOT / "campaigns").glob("*.yaml")} - {"virtual.yaml"}
    assert set(pages()) == documents | campaigns | {"campaigns"}


def test_the_list_names_every_page_under_its_section(assay: Assay) -> None:
    ended = assay("docs")
    assert (ended.code, ended.stderr) == (0, "")
    for page in pages().values():
        assert re.search(rf"^  {re.escape(page.name)} +\S", ended.stdout, re.MULTILINE), page.name
    assert "When something is wrong\n  failures " in ended.stdout
    listed = json.loads(assay("docs", "--json").stdout)["pages"]
    assert [entry["name"] for entry in listed] == list(pages())
    assert {"name": "failures", "title": "Failure classes of runs, each with its remedy",
            "section": "When something is wrong",
            "about": "Failure classes of runs, each with its remedy"} in listed  # fmt: skip


@pytest.mark.parametrize(
    "name", ["failures", "failures.md", "docs/failures.md", "Failures", "docs/failures.md#permission"]
)
def test_a_page_in_a_pipe_is_its_file(assay: Assay, name: str) -> None:
    text = (ROOT / "docs" / "failures.md").read_text()
    assert assay("docs", name).stdout == text
    assert json.loads(assay("docs", name, "--json").stdout) == {
        "name": "failures",
        "title": "Failure classes of runs, each with its remedy",
        "text": text,
    }


def test_a_campaign_to_start_from_is_written_where_it_is_sent(assay: Assay) -> None:
    assert assay("docs", "rodinia.yaml").stdout == (ROOT / "campaigns" / "rodinia.yaml").read_text()
    assert assay("docs", "campaigns/README.md").stdout == (ROOT / "campaigns" / "README.md").read_text()


def test_a_page_that_is_not_there_names_the_one_that_was_meant(assay: Assay) -> None:
    ended = assay("docs", "failure")
    assert (ended.code, ended.stdout) == (2, "")
    assert ended.stderr == (
        "error: PAGE: there is no page 'failure'; did you mean 'failures'? assay docs lists all pages\n"
    )


@pytest.mark.parametrize("name", [name for name in pages() if not name.endswith(".yaml")])
def test_nothing_of_a_page_is_cut_on_a_narrow_terminal(name: str) -> None:
    text = find_page(name).text
    shown = drawn(text, 50, color_system=None)
    flat = words(shown)
    for code in re.findall(r"^```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        assert all(f"    {line}".rstrip() in shown.splitlines() for line in code.splitlines())
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    prose = re.sub(r"\[([^\]\n]+)\]\([^)]+\)|<!--.*?-->", "", prose)
    # Words longer than a line are broken, but never left out.
    together = re.sub(r"\s", "", flat)
    for word in re.findall(r"[A-Za-z_][A-Za-z0-9_-]{3,}", prose):
        assert word in together, word


def test_links_become_the_command_that_shows_the_page() -> None:
    text = "See [failures.md](failures.md), [slices](campaign-file.md#slices), [x](../packaging) and [a](https://b.c)."
    shown = words(drawn(text, 200, color_system=None))
    assert shown == ("See `assay docs failures`, slices (`assay docs campaign-file`), x and a (https://b.c).")


def test_only_a_terminal_with_the_characters_is_drawn_on() -> None:
    latin = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    assert not can_draw(Console(file=latin, force_terminal=True))
    assert not can_draw(Console(file=io.StringIO(), force_terminal=False))


def test_pages_are_found_in_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "assay_client"
    monkeypatch.setattr(pages_module, "__file__", str(package / "pages.py"))
    with pytest.raises(StorageError, match="install Assay again"):
        folder("docs")
    for name in ("docs", "campaigns"):
        shutil.copytree(ROOT / name, package / name)
    assert folder("docs") == package / "docs"
    assert folder("campaigns") == package / "campaigns"


def test_the_wheel_takes_the_pages_from_their_one_source() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included == {name: f"assay_client/{name}" for name in ("docs", "campaigns")}
    assert all((ROOT / name / "README.md").is_file() for name in included)
    # A copy in the source tree would hide the pages of the checkout.
    assert not (ROOT / "client" / "assay_client" / "docs").exists()
    assert not (ROOT / "client" / "assay_client" / "campaigns").exists()


def texts_of_programs() -> Iterator[tuple[Path, str]]:
    """Every text that a program may print, of modules with the word "docs": what is no docstring."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            source = path.read_text()
            if "docs" not in source:  # no text of it names a page
                continue
            tree = ast.parse(source)
            documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            docstrings = {
                id(node.body[0].value)
                for node in ast.walk(tree)
                if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
            }
            for node in ast.walk(tree):
                if (
                    isinstance(node, ast.Constant)
                    and isinstance(node.value, str)
                    and id(node) not in docstrings
                ):
                    yield path, node.value


def test_messages_name_pages_by_the_command_that_shows_them() -> None:
    named = set()
    for path, text in texts_of_programs():
        assert not re.search(r"\bdocs/[a-z-]+\.md", text), f"{path}: {text}"
        # Alone, "assay docs PAGE" ends a text; in one it stands in quotes.
        named |= set(re.findall(r"'assay docs ([a-z.-]+)'", text))
    assert {"campaign-file", "methods", "recordings", "agent", "virtual-gpu", "bbv-format"} <= named
    assert named <= set(pages())
