"""What a confined program sees of the box: system programs and devices to read, a few folders to write.

A list of what is there, not of what is hidden: home folders, the agent's state, other runs, the box's
processes and most of /etc are not named, so they do not exist inside.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_SYSTEM = ("/usr", "/opt")
# On most systems links into /usr.
_LINKED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_OF_ETC = (
    "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "passwd", "group", "nsswitch.conf",
    "localtime", "ssl/certs", "OpenCL", "vulkan", "nvidia", "python3",
)  # fmt: skip
_NETWORK = ("hosts", "resolv.conf")
_GPUS = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps", "nvidia[0-9]*")
Mount = tuple[str, str, str]


@dataclass(frozen=True)
class View:
    """What is in the space, in the order in which it is put there; later entries cover earlier ones.

    Args:
        readable: further folders and files that can be read, by their own paths.
        writable: folders that can be written: where they are inside, and where they lie.
        temporary: as ``writable``, beneath everything else: a folder that is readable may lie in one.
        hidden: folders that are empty inside, even where a readable one holds them.
        tools: folders of programs inside a hidden folder.
        network: whether the box's network is there.
    """

    readable: tuple[str, ...] = ()
    writable: tuple[tuple[str, str], ...] = ()
    temporary: tuple[tuple[str, str], ...] = ()
    hidden: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    network: bool = False

    def mounts(self) -> list[Mount]:
        """(kind, path inside, source) of each; kinds as in :mod:`assay_agent.execution.confinement.start`."""
        entries: list[Mount] = [("read", path, path) for path in _SYSTEM if Path(path).is_dir()]
        for place in map(Path, _LINKED):
            if place.is_symlink():
                entries.append(("link", str(place), str(place.readlink())))
            elif place.is_dir():
                entries.append(("read", str(place), str(place)))
        for name in (*_OF_ETC, *(_NETWORK if self.network else ())):
            place = Path("/etc", name)
            if place.exists() and "/etc" not in self.readable:
                entries.append(("read", str(place), str(place.resolve())))
        entries += [("proc", "/proc", ""), ("read", "/sys", "/sys"), ("devices", "/dev", "")]
        entries += [("device", str(place), str(place)) for place in _gpus()]
        entries += [("write", path, source) for path, source in self.temporary]
        mounted_paths = {*_SYSTEM, *_LINKED}  # what a PATH names once more must not be mounted through a link
        for path in sorted({*self.readable}, key=len):
            if not mounted_paths & {path, *map(str, Path(path).parents)} and Path(path).exists():
                mounted_paths.add(path)
                entries.append(("read", path, path))
        entries += [("hidden", path, "") for path in self.hidden]
        entries += [("read", path, path) for path in self.tools]
        entries += [("write", path, source) for path, source in self.writable]
        return entries


def view_of(path: str, state: Path, *, modelled: bool, readable: tuple[str, ...] = ()) -> View:
    """What tools found by a PATH need to read; ``state``: the agent's folder, which is not there.

    ``modelled``: the first folder of the path holds stand-in tools, in that folder, which this Python runs.
    """
    folders = [folder for folder in path.split(":") if folder.startswith("/")]
    own = tuple(folders[:1]) if modelled else ()
    rest = folders[len(own) :]
    python = tuple(interpreter()) if modelled else ()
    named = (*(each for each in rest if each != "/"), *python, *readable)
    return View(readable=named, tools=own, hidden=(str(state),))


def interpreter() -> Iterator[str]:
    """What the stand-in tools of virtual GPUs need to read: this Python, and where it imports from."""
    yield from (sys.prefix, sys.base_prefix)
    yield from (place for place in sys.path if place.startswith("/") and Path(place).is_dir())


def _gpus() -> Iterable[Path]:
    return sorted(path for pattern in _GPUS for path in Path("/dev").glob(pattern))
