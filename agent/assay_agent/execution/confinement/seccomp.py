"""The filter of system calls for confined programs: a table, and its few instructions for the kernel.

Kernel interfaces that no program to be measured needs, that have had many faults, or that reach beyond the
program's own space: namespaces and mounts (a program could otherwise gain capabilities in a user namespace of
its own), keyrings, BPF, perf events, io_uring, modules, clocks. They fail with EPERM. ptrace and its like are
allowed: debuggers and profilers use them, and there is nobody else in the space. System V shared memory is
not, because segments that no process maps would count nowhere.

Numbers: the kernel's ``arch/x86/entry/syscalls/syscall_64.tbl`` and ``include/uapi/asm-generic/unistd.h``.
Source: seccomp(2); the kernel's ``Documentation/userspace-api/seccomp_filter.rst``; Docker's default profile.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping

# The machine's name in the kernel's audit.h.
_AUDIT: Mapping[str, int] = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Numbers of system calls on x86_64 and aarch64; None where that machine lacks the call.
_DENIED: Mapping[str, tuple[int, int | None]] = {
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "move_mount": (429, 429), "open_tree": (428, 428), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467),
    "unshare": (272, 97), "setns": (308, 268), "open_by_handle_at": (304, 265),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "shmget": (29, 194), "quotactl": (179, 60), "quotactl_fd": (443, 443), "acct": (163, 89),
    "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142), "syslog": (103, 116),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "lookup_dcookie": (212, 18),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58),
    "iopl": (172, None), "ioperm": (173, None),
}  # fmt: skip
_CLONE, _CLONE3 = {"x86_64": 56, "aarch64": 220}, 435
_NEW_NAMESPACES = 0x7E020000  # clone(2): CLONE_NEWNS, and those of cgroups, UTS, IPC, users, PIDs, networks
_X32 = 0x40000000  # numbers of x86_64's other interface
# struct seccomp_data: the number, the machine, and the low half of the first argument.
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000


def seccomp_filter(machine: str | None = None) -> bytes | None:
    """The program for the kernel's seccomp(2); None for a machine that the table does not have."""
    machine = machine or platform.machine()
    if machine not in _AUDIT:
        return None
    column = list(_AUDIT).index(machine)
    refused, unknown = _FAIL | errno.EPERM, _FAIL | errno.ENOSYS
    program = [
        _instruction(_LOAD, _MACHINE),
        _instruction(_EQUAL, _AUDIT[machine], 1, 0),
        _instruction(_RETURN, unknown),
        _instruction(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        program += [_instruction(_AT_LEAST, _X32, 0, 1), _instruction(_RETURN, unknown)]
    # Its flags are in memory, where no filter looks; C libraries then take clone.
    program += [_instruction(_EQUAL, _CLONE3, 0, 1), _instruction(_RETURN, unknown)]
    for numbers in _DENIED.values():
        if (number := numbers[column]) is not None:
            program += [_instruction(_EQUAL, number, 0, 1), _instruction(_RETURN, refused)]
    program += [
        _instruction(_EQUAL, _CLONE[machine], 0, 3),
        _instruction(_LOAD, _FIRST_ARGUMENT),
        _instruction(_ANY_BIT, _NEW_NAMESPACES, 0, 1),
        _instruction(_RETURN, refused),
        _instruction(_RETURN, _ALLOW),
    ]
    return b"".join(program)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """A struct sock_filter: jumps are numbers of instructions to skip."""
    return struct.pack("=HBBI", code, if_true, if_false, value)
