"""The command that the chart's notes have the admin run for the first backup, in a shell."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.services.chart import CHART


@pytest.mark.parametrize("status", [0, 3])
def test_the_first_backup_says_whether_it_was_made_and_leaves_no_passphrase(
    tmp_path: Path, status: int
) -> None:
    [script] = re.findall(
        r"sh -c '([^']*assay-server backup[^']*)'", (CHART / "templates" / "NOTES.txt").read_text()
    )
    program = tmp_path / "assay-server"
    program.write_text(f'#!/bin/sh\nstat -c %a passphrase > seen\necho "$@" >> seen\nexit {status}\n')
    program.chmod(0o700)
    done = subprocess.run(
        ["/bin/sh", "-c", script.replace("/tmp/", "./")],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        input=b"correct horse",
        check=False,
    )
    assert done.returncode == status
    assert not (tmp_path / "passphrase").exists()
    mode, arguments = (tmp_path / "seen").read_text().splitlines()
    assert mode == "600" and arguments.startswith("backup ./day-one.tar")
