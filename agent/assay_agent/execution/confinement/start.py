"""The process between the supervisor and bubblewrap: it lets a program start once its mounts are as expected.

    python -I -S start.py SPEC PROGRAM [ARGUMENT ...]

SPEC is JSON: ``command`` (bubblewrap with its options), ``mounts`` (a list of [kind, path], see
:data:`FLAGS`), ``filter`` (seccomp's program in hexadecimal), ``processes`` (how many there may be) and
``refusal`` (a file for the reason if the program was not started). With the standard library only, like
:mod:`assay_core.processes.supervisor`, under which it runs: outside, where the program cannot reach it.

bubblewrap waits (``--block-fd``) after it has made the space and before it starts the program. Whatever an
option was taken for, by whatever release, the kernel's own table of the space decides. This process ends as
the program did.

Source: bwrap(1); proc(5), ``/proc/PID/mountinfo``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

# Options that each kind of mount must have.
FLAGS = {
    "root": {"ro", "nosuid", "nodev"},
    "read": {"ro", "nosuid", "nodev"},
    "hidden": {"ro", "nosuid", "nodev"},
    "write": {"nosuid", "nodev"},
    "proc": {"nosuid", "nodev", "noexec"},
    "devices": {"ro", "nosuid"},
    "device": {"nosuid"},
}
# A mount below one of these is the box's own, and must be as read-only as the others.
_WITH_OTHERS_BELOW = ("read", "proc")
_OF_DEV = ("null", "zero", "full", "random", "urandom", "tty", "console", "pts")
_LOOK_SECONDS, _MOST_SECONDS = 0.002, 20.0
_ENDING = {
    getattr(signal, f"SIG{name}") for name in ["KILL", "SEGV", "ABRT", "BUS", "FPE", "ILL", "INT", "TERM"]
}
CANNOT = 125


def main(arguments: list[str]) -> int:
    """Start the program and end as it did; the exit status is 125 if it was not started."""
    spec, program = json.loads(arguments[0]), arguments[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # they are for the program, which is in our group
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError):  # a lower limit is in force
        resource.setrlimit(resource.RLIMIT_NPROC, (spec["processes"], spec["processes"]))
    info, info_end = os.pipe()
    block_end, block = os.pipe()
    seccomp = os.memfd_create("seccomp")
    os.write(seccomp, bytes.fromhex(spec["filter"]))
    os.lseek(seccomp, 0, os.SEEK_SET)
    passed = (info_end, block_end, seccomp)
    options = ["--info-fd", str(info_end), "--block-fd", str(block_end), "--seccomp", str(seccomp)]
    space = subprocess.Popen([*spec["command"], *options, "--", *program], pass_fds=passed)
    for descriptor in passed:
        os.close(descriptor)
    why = _why_not(info, space, spec["mounts"])
    if why:
        space.kill()
        space.wait()
        with open(spec["refusal"], "w", encoding="utf-8") as file:  # noqa: PTH123
            file.write(why)
        return CANNOT
    os.write(block, b"1")
    os.close(block)
    return _end_as(space.wait())


def _why_not(info: int, space: subprocess.Popen[bytes], mounts: list[list[str]]) -> str:
    """Why the program must not start; "" once the space is as expected."""
    with os.fdopen(info, "rb") as file:
        info_json = file.read()
    until = time.monotonic() + _MOST_SECONDS
    why = ""
    while time.monotonic() < until:
        if space.poll() is not None or not info_json:
            return f"bubblewrap ended before the program began (exit status {space.wait()})"
        try:
            with open(f"/proc/{json.loads(info_json)['child-pid']}/mountinfo", encoding="utf-8") as table:  # noqa: PTH123
                why = wrong_mounts(table.read().splitlines(), mounts)
        except OSError as error:
            why = f"its mounts cannot be read ({error.strerror})"
        if not why:
            return ""
        time.sleep(_LOOK_SECONDS)
    return f"its mounts are not as expected: {why}"


def wrong_mounts(table: Sequence[str], expected: Sequence[Sequence[str]]) -> str:
    """What is wrong with the lines of a mountinfo; "" if it is what ``expected`` (kind, path) says."""
    kinds = {path: kind for kind, path in expected}
    kinds |= {"/": "root"} | {f"/dev/{name}": "device" for name in _OF_DEV}
    missing = {path for kind, path in expected if kind != "link"} | {"/"}
    for path, options in _reachable(table):
        kind, exact = _kind(path, kinds)
        missing.discard(path)
        lacking = FLAGS.get(kind, set()) - options
        if not exact and kind not in _WITH_OTHERS_BELOW:
            return f"{path} is mounted, and nothing should be"
        if not exact and "ro" not in options:
            lacking = lacking | {"ro"}
        if lacking:
            return f"{path} is not {', '.join(sorted(lacking))}"
    return f"{min(missing)} is not mounted" if missing else ""


def _reachable(table: Sequence[str]) -> Iterator[tuple[str, set[str]]]:
    """Path and options of each mount that nothing at the same path covers, or covers what it is below."""
    rows = [line.split() for line in table]
    paths = {row[0]: row[4] for row in rows}
    covered = {row[1] for row in rows if paths.get(row[1]) == row[4]}
    below = {row[0] for row in rows if row[1] in covered and paths[row[1]] != row[4]}
    while more := {row[0] for row in rows if row[1] in below} - below:
        below |= more
    for row in rows:
        if row[0] not in covered | below:
            yield _plain(row[4]), set(row[5].split(","))


def _kind(path: str, kinds: dict[str, Any]) -> tuple[str, bool]:
    """The kind of the closest expected mount, and whether it is just this one."""
    place = path
    while place not in kinds:
        place = place.rpartition("/")[0] or "/"
    return kinds[place], place == path


def _plain(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def _end_as(code: int) -> int:
    """End by the signal that ended the program; bubblewrap tells it as 128 and its number."""
    ended_by = -code if code < 0 else code - 128
    if ended_by in _ENDING:
        if ended_by != signal.SIGKILL:
            signal.signal(ended_by, signal.SIG_DFL)
        os.kill(os.getpid(), ended_by)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
