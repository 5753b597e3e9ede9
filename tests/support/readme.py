"""The commands of the README under "Use it", block by block."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def readme_blocks() -> dict[str, list[str]]:
    """The lines of each block of commands, by the bold sentence that it stands under."""
    found: dict[str, list[str]] = {}
    part = (ROOT / "README.md").read_text().partition("\n## Use it\n")[2].partition("\n## ")[0]
    heading = ""
    for line in part.splitlines():
        if match := re.match(r"\*\*(.+?)\.\*\*", line):
            heading = match[1]
        elif line.startswith("    "):
            found.setdefault(heading, []).append(line.strip())
    return found
