"""Another user of the machine, for tests that run as root: a child process that becomes ``nobody``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NOBODY = 65534
# What is imported before the change of user need not be readable to the other user.
_BECOME_NOBODY = f"""
import os, socket, sys, pathlib, stat
import grpc
from assay_protos import campaign_pb2, campaign_pb2_grpc
os.setgroups([]); os.setresgid({NOBODY}, {NOBODY}, {NOBODY}); os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
os.chdir("/")
"""
needs_second_user = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can start a process of another user (run the tests as root)"
)


def start_as_nobody(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """Python code as the user ``nobody``, with gRPC, sockets and the campaign service imported."""
    return subprocess.Popen(
        [sys.executable, "-c", _BECOME_NOBODY + code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def as_nobody(code: str, *arguments: str | Path) -> str:
    """What the code prints; fails the test where it ends with an error."""
    child = start_as_nobody(code, *arguments)
    out, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    return out.strip()
