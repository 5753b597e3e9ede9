"""The README's commands typed in a shell as they are printed, from an empty folder to the report of a lab."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from tests.support.readme import readme_blocks
from tests.support.shell import typed_in_bash

SECONDS = 400
# Ends with 10 on a machine without a GPU, which is what it is there to say.
LOOKS_FOR_GPUS = "assay doctor --for agent"


def typed() -> str:
    """All lines in one shell, which stops at the first that fails."""
    lines = ["set -e"]
    for line in (line for block in readme_blocks().values() for line in block):
        background = re.fullmatch(r"(.*) &(\s+#.*)?", line)
        lines.append(f"echo {re.sub(r'[^A-Za-z0-9 ./-]', '', '@ ' + line)!r}")
        if line.startswith(LOOKS_FOR_GPUS):
            lines.append(f"{line} || test $? = 10")
        elif background:
            lines.append(f"{background[1]} > programs.log 2>&1 &")
        else:
            lines.append(line)
    return "\n".join([*lines, "kill %1 %2", "wait", "echo '@ end'"])


@pytest.mark.processes
@pytest.mark.campaigns
def test_every_command_of_the_readme_works_as_typed(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="assay-") as short:  # sockets are made there
        places = dict.fromkeys(("TMPDIR", "XDG_RUNTIME_DIR"), short)
        code, shown = typed_in_bash(typed(), tmp_path, SECONDS, HOME=str(tmp_path), **places)
    last = re.findall(r"^@ (.*)$", shown, re.MULTILINE)[-1]
    assert (code, last) == (0, "end"), shown[-4000:]
    assert re.search(r"^training-1 done: 3 of 3 runs done$", shown, re.MULTILINE)
    assert (tmp_path / "sample" / "selection.json").is_file()
