"""Tests share helpers through tests/support: a test module may change without breaking another one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def imported_modules(source: str) -> Iterator[str]:
    """The full names of what a module imports; for ``from a import b`` both ``a`` and ``a.b``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def of_test_modules(source: str, test_modules: set[str]) -> set[str]:
    """The test modules that a source imports, by their bare or by their full names."""
    if test_modules.isdisjoint(re.findall(r"\w+", source)):
        return set()
    return {part for name in imported_modules(source) for part in name.split(".") if part in test_modules}


def test_no_module_imports_from_a_test_module() -> None:
    sources = sorted((ROOT / "tests").rglob("*.py"))
    test_modules = {path.stem for path in sources if path.stem.startswith("test_")} | {"conftest"}
    assert len(test_modules) > 100
    found = {
        str(path.relative_to(ROOT)): names
        for path in sources
        if (names := of_test_modules(path.read_text(), test_modules))
    }
    assert found == {}, "move what is shared to tests/support"


def test_every_way_to_import_a_test_module_is_found() -> None:
    modules = {"test_made"}
    for source in (
        "import test_made",
        "from test_made import Box",
        "from tests.server.test_made import Box",
        "from tests.server import test_made as made",
        "def late():\n    import tests.server.test_made",
    ):
        assert of_test_modules(source, modules) == modules, source
    assert of_test_modules("from tests.support.server import desk\nimport test_making", modules) == set()
