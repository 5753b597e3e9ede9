"""Network interfaces by the kernel's own calls: a tap is a network card whose frames a program carries.

Source: Documentation/networking/tuntap.rst of Linux, netdevice(7).
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct

TUN = "/dev/net/tun"
_TUNSETIFF, _TAP, _NO_HEADER = 0x400454CA, 0x0002, 0x1000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK = 0x8913, 0x8914, 0x8916, 0x891C
_UP = 1
_NETMASK = "255.255.255.0"


def open_tap(name: str, address: str) -> int:
    """Make a tap with an IPv4 address (/24) in this thread's network; the file that carries its frames.

    Raises OSError where that is not allowed.
    """
    file = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(file, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TAP | _NO_HEADER))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            fcntl.ioctl(asking, _SIOCSIFADDR, _with_address(name, address))
            fcntl.ioctl(asking, _SIOCSIFNETMASK, _with_address(name, _NETMASK))
        set_up(name)
    except BaseException:
        os.close(file)
        raise
    return file


def set_up(name: str) -> None:
    """Switch an interface of this thread's network on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        answer = fcntl.ioctl(asking, _SIOCGIFFLAGS, struct.pack("16sH22x", name.encode(), 0))
        [flags] = struct.unpack_from("H", answer, 16)
        fcntl.ioctl(asking, _SIOCSIFFLAGS, struct.pack("16sH22x", name.encode(), flags | _UP))


def _with_address(name: str, address: str) -> bytes:
    return struct.pack("16sHH4s16x", name.encode(), socket.AF_INET, 0, socket.inet_aton(address))
