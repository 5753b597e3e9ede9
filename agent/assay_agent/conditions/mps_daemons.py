"""Finds all MPS control daemons of the box, whoever started them, by the sockets that they listen on.

Source: proc(5), ``/proc/net/unix``.
"""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")
_SOCKET = "control_privileged"


def mps_daemons() -> list[Path]:
    """The pipe folders of all living MPS control daemons; empty if the kernel does not list sockets."""
    try:
        text = (PROC / "net/unix").read_text(errors="replace")
    except OSError:
        return []
    names = (line.split(maxsplit=7)[7:] for line in text.splitlines())
    sockets = (Path(name[0]) for name in names if name)
    return sorted({path.parent for path in sockets if path.name == _SOCKET})
