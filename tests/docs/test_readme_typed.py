"""The README's commands typed in a shell as they are printed, from an empty folder to the report of a lab."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from tests.support.readme import typed_commands
from tests.support.shell import typed_in_bash

SECONDS = 400


@pytest.mark.processes
@pytest.mark.campaigns
def test_every_command_of_the_readme_works_as_typed(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="assay-") as short:  # sockets are made there
        places = dict.fromkeys(("TMPDIR", "XDG_RUNTIME_DIR"), short)
        code, shown = typed_in_bash(typed_commands(), tmp_path, SECONDS, HOME=str(tmp_path), **places)
    last = re.findall(r"^@ (.*)$", shown, re.MULTILINE)[-1]
    assert (code, last) == (0, "end"), shown[-4000:]
    assert re.search(r"^training-1 done: 3 of 3 runs done$", shown, re.MULTILINE)
    assert (tmp_path / "sample" / "selection.json").is_file()
