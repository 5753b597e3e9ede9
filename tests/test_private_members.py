"""No module reads a private member of another: what one needs of another has a public name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = sorted(
    path.parent
    for folder in ("protos", "sampling", "agent", "server", "client")
    for path in (ROOT / folder).glob("assay_*/__init__.py")
    if path.parent.name != "assay_protos"
)
# Their documentation gives these names to everybody.
DOCUMENTED = {"os._exit"}
OF_NAMED_TUPLES = {"_replace", "_asdict", "_fields", "_make"}
OWN = {"self", "cls", "super()"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


class Module:
    """One source file: what it defines, and what it reads of others."""

    def __init__(self, source: str) -> None:
        self.tree = ast.parse(source)
        self.classes = {node.name: node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef)}
        self.modules = {
            (alias.asname or alias.name).partition(".")[0]
            for node in ast.walk(self.tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        }
        # ``x._y |= 1`` reads a member that is defined elsewhere.
        self.augmented = {node.target for node in ast.walk(self.tree) if isinstance(node, ast.AugAssign)}
        self.defined = set(self._defined_in(self.tree))

    def foreign_reads(self) -> Iterator[tuple[int, str]]:
        """The line and the name of every private member of another module that is read here."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                names = (alias.name for alias in node.names)
                yield from ((node.lineno, f"{node.module}.{name}") for name in names if is_private(name))
            elif isinstance(node, ast.Attribute) and is_private(node.attr) and self._is_foreign(node):
                yield node.lineno, f"{ast.unparse(node.value)}.{node.attr}"
        yield from self._inherited_reads()

    def _is_foreign(self, node: ast.Attribute) -> bool:
        """Whether the member of something else than ``self`` is no class's of this module."""
        holder = ast.unparse(node.value)
        if holder in OWN or node.attr in OF_NAMED_TUPLES or f"{holder}.{node.attr}" in DOCUMENTED:
            return False
        return holder in self.modules or node.attr not in self.defined

    def _inherited_reads(self) -> Iterator[tuple[int, str]]:
        """Private members of a base class that another module defines."""
        for each in self.classes.values():
            members = self._members(each)
            for node in ast.walk(each):
                if not (isinstance(node, ast.Attribute) and ast.unparse(node.value) in OWN):
                    continue
                if is_private(node.attr) and node.attr not in members:
                    yield node.lineno, f"self.{node.attr}"

    def _members(self, node: ast.ClassDef) -> set[str]:
        """What a class and its bases in this module define, also in the classes around and inside it."""
        found = set(self._defined_in(node))
        for base in node.bases:
            parent = self.classes.get(base.id) if isinstance(base, ast.Name) else None
            if parent is not None:
                found |= self._members(parent)
        return found

    def _defined_in(self, tree: ast.AST) -> Iterator[str]:
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield node.name
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if node not in self.augmented:
                    yield node.attr
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_no_module_reads_a_private_member_of_another(package: Path) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted(package.rglob("*.py"))
        for line, name in Module(path.read_text()).foreign_reads()
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from a import _b", ["a._b"]),
        ("import a\na._b()", ["a._b"]),
        ("import a\n_b = 1\na._b()", ["a._b"]),
        ("def f(x):\n    return x._b", ["x._b"]),
        ("from a import A\nclass B(A):\n    def f(self):\n        return self._x", ["self._x"]),
        ("from a import A\nclass B(A):\n    def _x(self):\n        return super()._y()", ["self._y"]),
        ("from a import A\nclass B(A):\n    def f(self):\n        self._x |= 1", ["self._x"]),
        ("class A:\n    _x = 1\nclass B(A):\n    def f(self):\n        return self._x", []),
        ("class A:\n    def __init__(self, other):\n        self._x = other._x", []),
        ("import os\nos._exit(1)", []),
        ("def f(row):\n    return row._replace(a=1)", []),
    ],
)
def test_the_reading_of_sources_finds_them(source: str, names: list[str]) -> None:
    assert [name for _, name in Module(source).foreign_reads()] == names
