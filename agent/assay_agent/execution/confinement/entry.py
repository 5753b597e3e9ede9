"""The process that puts a program into namespaces of its own, as another user: started as root.

    python -I -S entry.py SPEC PROGRAM [ARGUMENT ...]

SPEC is JSON: ``user``, ``group``, ``network``, ``stage`` (an empty folder), ``folder`` (where the program
starts) and ``mounts``, a list of [kind, path, source] in order. With the standard library only, as
:mod:`assay_agent.execution.supervisor`, under which it runs.

First it leaves the box's mounts, processes, System V memory, host name and, without ``network``, its network.
Then a child, process 1 of the new space, builds an empty root with what ``mounts`` names, and nothing else;
gives up groups, user and every right to get others (no_new_privs); and starts the program. When the program
ends, process 1 ends, and the kernel kills whatever is left in the space: nothing outlives its run. This
process ends as the program did.

Source: namespaces(7), pid_namespaces(7), mount_namespaces(7), pivot_root(2), capabilities(7).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import platform
import resource
import shutil
import signal
import socket
import struct
import sys
from typing import Any

_NEWNS, _NEWUTS, _NEWIPC, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_DETACH = 2
_SET_PDEATHSIG, _SET_NO_NEW_PRIVS, _CAPBSET_DROP = 1, 38, 24
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "ppc64le": 203, "riscv64": 41}
_DEVICES = ("null", "zero", "full", "random", "urandom")
_FLAGS = {b"ro": _RDONLY, b"nosuid": _NOSUID, b"nodev": _NODEV, b"noexec": _NOEXEC}
# Type, flags and options of the mounts that begin empty.
_FRESH = {
    "proc": ("proc", _NOSUID | _NODEV | _NOEXEC, ""),
    "temporary": ("tmpfs", _NOSUID | _NODEV, "mode=1777"),
    "hidden": ("tmpfs", _NOSUID | _NODEV, "mode=0755,size=64m"),
}
_SIOCSIFFLAGS, _IFF_UP_RUNNING = 0x8914, 0x41
_ENDING = {
    getattr(signal, f"SIG{name}") for name in ["KILL", "SEGV", "ABRT", "BUS", "FPE", "ILL", "INT", "TERM"]
}
_MOST_PROCESSES = 4096
_CANNOT = 125

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> int:
    """Enter, run the program, and end as it did; the exit status is 125 if it could not be confined."""
    spec, command = json.loads(arguments[0]), arguments[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are for the program, which is in our group
    try:
        space = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | (0 if spec["network"] else _NEWNET)
        _checked(_libc.unshare(space), "namespaces cannot be made")
        child = os.fork()  # process 1 of the new space
        if not child:
            os._exit(_first(spec, command))
    except OSError as error:
        return _cannot(error)
    _, status = os.waitpid(child, 0)
    return _end_as(status)


def _first(spec: dict[str, Any], command: list[str]) -> int:
    """Process 1: build the space, run the program, collect whoever loses their parent."""
    try:
        _libc.prctl(_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if not spec["network"]:
            _raise_loopback()
        _build(spec)
        program = os.fork()
        if not program:
            _become(spec, command)
    except OSError as error:
        return _cannot(error)
    while True:
        ended, status = os.wait()
        if ended == program:
            return _told(status)


def _told(status: int) -> int:
    """The exit status of process 1, which the kernel shields from its own signals: 128 + number for those."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _end_as(status: int) -> int:
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    code = os.WEXITSTATUS(status)
    ended_by = code - 128
    if ended_by in _ENDING:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if ended_by != signal.SIGKILL:
            signal.signal(ended_by, signal.SIG_DFL)
        os.kill(os.getpid(), ended_by)
    return code


def _become(spec: dict[str, Any], command: list[str]) -> None:
    """Give up every right of this process, then become the program. Never returns."""
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NPROC, (_MOST_PROCESSES, _MOST_PROCESSES))
        for capability in range(64):
            _libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0)  # EINVAL beyond the last
        os.setgroups([])
        os.setresgid(spec["group"], spec["group"], spec["group"])
        os.setresuid(spec["user"], spec["user"], spec["user"])
        _checked(_libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs cannot be set")
        if os.getuid() != spec["user"] or os.getgroups() or not os.getuid():
            raise OSError(errno.EPERM, "the user did not change")
        os.chdir(spec["folder"])
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.execvp(command[0], command)
    except FileNotFoundError:
        os.write(2, f"{command[0]}: No such file or directory\n".encode())
        os._exit(127)
    except OSError as error:
        os._exit(_cannot(error, command[0]))


def _cannot(error: OSError, what: str = "confinement") -> int:
    os.write(2, f"assay: {what}: {error.filename or ''} {error.strerror or error}\n".encode())
    return _CANNOT


def _checked(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = [word.encode() for word in (source, target, kind, options)]
    _checked(_libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), f"mount {target}")


def _build(spec: dict[str, Any]) -> None:
    """An empty root with what was asked for, in place of the box's."""
    stage = spec["stage"]
    _mount("none", "/", "", _REC | _PRIVATE)
    _mount("tmpfs", stage, "tmpfs", _NOSUID | _NODEV, "mode=0755,size=64m")
    os.chmod(stage, 0o755)  # noqa: PTH101 - started without site packages
    for kind, path, source in spec["mounts"]:
        _place(kind, stage + path, source)
    os.chdir(stage)
    _checked(_libc.syscall(_PIVOT_ROOT[platform.machine()], b".", b"."), "pivot_root")
    _checked(_libc.umount2(b".", _DETACH), "umount of the old root")
    os.chdir("/")
    # What we made ourselves cannot be changed from inside, whatever its modes.
    _mount("none", "/", "", _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)


def _place(kind: str, target: str, source: str) -> None:
    if kind == "link":
        os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)  # noqa: PTH103, PTH120
        os.symlink(source, target)  # noqa: PTH211
        return
    if kind == "copy":
        _copy(source, target)
        return
    if kind in ("read", "write", "device") and not os.path.isdir(source):  # noqa: PTH112
        os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)  # noqa: PTH103, PTH120
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    else:
        os.makedirs(target, 0o755, exist_ok=True)  # noqa: PTH103
    if kind in _FRESH:
        _mount(kind if kind == "proc" else "tmpfs", target, *_FRESH[kind])
    elif kind == "devices":
        _devices(target)
    else:
        _mount(source, target, "", _BIND | _REC)
        if kind != "device":
            _restrict(target, _NOSUID | _NODEV | (_RDONLY if kind == "read" else 0))


def _copy(source: str, target: str) -> None:
    """Programs that only root can read, for the program's user to run."""
    shutil.copytree(source, target, symlinks=True)
    for folder, _, names in os.walk(target):
        os.chmod(folder, 0o755)  # noqa: PTH101
        for name in names:
            os.chmod(os.path.join(folder, name), 0o755)  # noqa: PTH101, PTH118


def _restrict(target: str, flags: int) -> None:
    """Restrict a bound place and every mount below it."""
    with open("/proc/self/mountinfo", "rb") as file:  # noqa: PTH123
        lines = [line.split() for line in file]
    inside = target.encode()
    for words in lines:
        place = words[4].replace(b"\\040", b" ").replace(b"\\011", b"\t").replace(b"\\134", b"\\")
        if place == inside or place.startswith(inside + b"/"):
            kept = sum(_FLAGS.get(option, 0) for option in words[5].split(b","))
            _mount("none", place.decode(errors="surrogateescape"), "", _REMOUNT | _BIND | kept | flags)


def _devices(target: str) -> None:
    _mount("tmpfs", target, "tmpfs", _NOSUID, "mode=0755,size=64k")
    for name in _DEVICES:
        _place("device", f"{target}/{name}", f"/dev/{name}")
    for name, source in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(f"/proc/self/{source}", f"{target}/{name}")  # noqa: PTH211
    _place("temporary", f"{target}/shm", "")


def _raise_loopback() -> None:
    """Nsight's tools talk to the programs they profile over the loopback interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        fcntl.ioctl(channel, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP_RUNNING))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
