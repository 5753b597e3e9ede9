"""Networks and mounts of a test's own, so that it changes nothing of the machine that it runs on.

Root makes them directly, anybody else inside a user namespace of their own. Source: namespaces(7),
user_namespaces(7).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache

from tests.support.machine.links import set_up

CLONE_NEWNET = 0x4000_0000
OWN_NETWORK = "/proc/self/ns/net"
_INSIDE = "ASSAY_TESTS_INSIDE"  # how this process was started again, in unshare's words
_SECONDS = 30.0

_libc = ctypes.CDLL(None, use_errno=True)


def leave_network() -> None:
    """Put this thread into an empty network of its own; raises OSError."""
    _called(_libc.unshare(CLONE_NEWNET))


def enter_network(file: int) -> None:
    """Put this thread into the network that an open file of /proc/PID/ns/net stands for; raises OSError."""
    _called(_libc.setns(file, CLONE_NEWNET))


def _called(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@cache
def ways() -> tuple[tuple[str, ...], str]:
    """A prefix that starts a command in networks and mounts of its own, and why there is none ("": there is).

    With the rights of real root if they suffice, because these alone may attach a loop device.
    """
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return (), "unshare and nsenter (util-linux) are not here"
    said = ""
    as_root = ("unshare", "--net", "--mount", "--propagation", "private")
    for prefix in (as_root, ("unshare", "--user", "--map-root-user", *as_root[1:])):
        done = subprocess.run(
            [*prefix, "true"], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if not done.returncode:
            return prefix, ""
        said = done.stderr.strip()
    return (), f"no namespaces may be made here: {said}"


def start_again_inside(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> str:
    """Replace this process by the same one in a network and with mounts of its own.

    Args:
        arguments: of Python, such as ``["-m", "tests.chaos"]``.

    Returns:
        "" if this process is already inside, else why it cannot be.
    """
    if environment.get(_INSIDE):
        set_up("lo")
        return ""
    prefix, why_not = ways()
    if why_not:
        return why_not
    os.environ[_INSIDE] = " ".join(prefix)
    os.execvp(prefix[0], [*prefix, "--", sys.executable, *arguments])
