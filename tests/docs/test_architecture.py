"""The page of the architecture names modules that exist, and no room is crowded."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support import room_tables

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
# A folder of one kind (a verb, a reporter, a reader of one tool, a method) may have more.
MOST_MODULES = 15
OF_ONE_KIND = {"verbs", "reporters", "versions"}


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, a room, or a member of a module."""
    package, *rest = name.split(".")
    path = room_tables.PACKAGES[package].joinpath(*rest)
    if path.with_suffix(".py").is_file() or path.is_dir():
        return True
    module = path.parent.with_suffix(".py")
    return module.is_file() and re.search(rf"\b{re.escape(path.name)}\b", module.read_text()) is not None


def test_every_module_that_the_page_names_is_there() -> None:
    names = set(re.findall(r"`(assay_[a-z]+(?:\.\w+)+)`", PAGE))
    assert len(names) > 30
    assert [name for name in sorted(names) if not is_there(name)] == []
    files = set(re.findall(r"`((?:sampling|agent|server|client|tests)/[\w/.]+)`", PAGE))
    assert files
    assert [name for name in sorted(files) if not (ROOT / name).exists()] == []


def test_every_file_that_contributors_are_sent_to_is_there() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    paths = set(re.findall(r"`((?:\w+/)+\w+\.\w+)`", page))
    folders = [ROOT / each for each in ("protos", "sampling", "agent", "server", "client")]
    assert len(paths) > 10
    missing = [path for path in paths if not any(list(folder.glob(f"**/{path}")) for folder in folders)]
    assert [path for path in sorted(missing) if not (ROOT / path).exists()] == []


def test_no_room_of_mixed_contents_is_crowded() -> None:
    crowded = {}
    for package in room_tables.PACKAGES.values():
        for folder in (package, *(path.parent for path in package.rglob("__init__.py"))):
            modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
            if len(modules) > MOST_MODULES and folder.name not in OF_ONE_KIND:
                crowded[str(folder.relative_to(ROOT))] = len(modules)
    assert crowded == {}
