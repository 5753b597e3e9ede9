"""The tables of rooms in docs/architecture.md: each room of a package with the summary of its docstring.

Rooms are in the order of the package's layers in pyproject.toml; others follow by name.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    path.parent.name: path.parent
    for folder in ("protos", "sampling", "agent", "server", "client")
    for path in (ROOT / folder).glob("assay_*/__init__.py")
    if path.parent.name != "assay_protos"
}


def _layers(package: str) -> list[str]:
    """The rooms of a package in the order of its layers, highest first; none where no contract has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    for contract in contracts:
        if contract["type"] == "layers" and contract.get("containers") == [package]:
            return [name.strip(" ()") for layer in contract["layers"] for name in layer.split("|")]
    return []


def _summary(room: Path) -> str:
    """The first paragraph of a room's docstring as Markdown."""
    docstring = ast.get_docstring(ast.parse((room / "__init__.py").read_text()))
    assert docstring, f"{room} has no docstring"
    text = " ".join(docstring.split("\n\n")[0].split())
    return re.sub(r":mod:`([^`]+)`", r"`\1`", text).replace("``", "`")


def room_table(package: str) -> str:
    """The rooms of a package, with what each contains."""
    layers = _layers(package)
    rooms = [path.parent for path in PACKAGES[package].glob("*/__init__.py")]
    rooms.sort(key=lambda room: (layers.index(room.name) if room.name in layers else len(layers), room.name))
    rows = [f"| `{room.name}/` | {_summary(room)} |" for room in rooms]
    return "\n".join(["| room | contents |", "|---|---|", *rows])
