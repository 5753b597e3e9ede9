"""The commands of the README under "Use it", block by block."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Ends with 10 on a machine without a GPU, which is what it is there to say.
_LOOKS_FOR_GPUS = "assay doctor --for agent"


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


def typed_commands() -> str:
    """A script of all lines for one shell, which stops at the first that fails."""
    lines = ["set -e"]
    for line in (line for block in readme_blocks().values() for line in block):
        background = re.fullmatch(r"(.*) &(\s+#.*)?", line)
        lines.append(f"echo {re.sub(r'[^A-Za-z0-9 ./-]', '', '@ ' + line)!r}")
        if line.startswith(_LOOKS_FOR_GPUS):
            lines.append(f"{line} || test $? = 10")
        elif background:
            lines.append(f"{background[1]} > programs.log 2>&1 &")
        else:
            lines.append(line)
    return "\n".join([*lines, "kill %1 %2", "wait", "echo '@ end'"])
