"""What of Debian's packages is kept, where it lies in the cache, and what a finished folder says of itself.

    CACHE/GENERATION/stamp.json                        versions of the packages, and the size; written last
                     nsight-compute/target/*/ncu
                     nsight-compute/sections/          without them ncu warns at every start
                     nsight-systems/target-linux-x64/nsys
                     nsight-systems/host-linux-x64/    beside it, in one real folder: the importer needs that
                     driver/libcuda.so.1, libnvidia-ml.so.1
                     bin/ncu, bin/nsys                 links; a PATH for agents
                     mps/nvidia-cuda-mps-control
    CACHE/unavailable.json                             why a generation is not there

Standard library only: this runs before anything is installed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

LAYOUT = 1  # a stamp of another layout does not count
STAMP, UNAVAILABLE = "stamp.json", "unavailable.json"
# The user interface and its libraries, which no command line loads.
_LEFT_OUT = re.compile(
    r"(libQt6|libNvQt|libQtProp|libicu|libssh|Plugins|resources|translations|libexec|python|PythonNvtx|nsys-ui|"
    r"CrashReporter|libnvperf_grfx)[^/]*(/.*)?"
)
_LIBRARIES = "usr/lib/x86_64-linux-gnu/"
# Package: (folder in it, folder here).
KEPT: dict[str, tuple[tuple[str, str], ...]] = {
    "nsight-compute": ((_LIBRARIES + "nsight-compute/sections/", "nsight-compute/sections/"),),
    "nsight-compute-target": ((_LIBRARIES + "nsight-compute/", "nsight-compute/"),),
    "nsight-systems": (("usr/lib/nsight-systems/host-linux-x64/", "nsight-systems/host-linux-x64/"),),
    "nsight-systems-target": (
        (_LIBRARIES + "nsight-systems/target-linux-x64/", "nsight-systems/target-linux-x64/"),
    ),
    "nvidia-cuda-mps": (("usr/bin/", "mps/"), ("usr/sbin/", "mps/")),
    "libcuda1": ((_LIBRARIES + "nvidia/current/", "driver/"),),
    "libnvidia-ml1": ((_LIBRARIES + "nvidia/current/", "driver/"),),
}
# The importer loads it. It must fit this machine's C library, so it comes from this machine's own release.
SSH_PACKAGE = "libssh-4"
SSH_KEPT = ((_LIBRARIES, "nsight-systems/host-linux-x64/"),)
_NCU = "nsight-compute/target/linux-desktop-glibc_2_11_3-x64/ncu"
_NSYS = "nsight-systems/target-linux-x64/nsys"


@dataclass(frozen=True)
class Generation:
    """The tools of one Debian release, unpacked."""

    name: str
    folder: Path
    packages: dict[str, str]
    size_bytes: int

    @property
    def ncu(self) -> Path:
        return self.folder / _NCU

    @property
    def nsys(self) -> Path:
        return self.folder / _NSYS

    @property
    def mps_control(self) -> Path:
        return self.folder / "mps" / "nvidia-cuda-mps-control"

    @property
    def driver(self) -> Path:
        """The folder of libcuda.so.1: ncu finds it through LD_LIBRARY_PATH, and then says "no device"."""
        return self.folder / "driver"


def finished(cache: Path, name: str) -> Generation | None:
    """The generation of that name, where it was unpacked to the end; None otherwise."""
    folder = cache / name
    try:
        stamp = json.loads((folder / STAMP).read_text())
        found = Generation(name, folder, dict(stamp["packages"]), int(stamp["size_bytes"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    whole = stamp.get("layout") == LAYOUT and found.ncu.is_file() and found.nsys.is_file()
    return found if whole else None


def generations(cache: Path) -> list[Generation]:
    """All finished generations, oldest tools first."""
    names = sorted(path.parent.name for path in cache.glob(f"*/{STAMP}"))
    return sorted(
        (found for name in names if (found := finished(cache, name))),
        key=lambda found: found.packages.get("nsight-compute-target", ""),
    )


def reasons(cache: Path) -> dict[str, str]:
    """Why generations are not there, by name."""
    try:
        return dict(json.loads((cache / UNAVAILABLE).read_text()))
    except (OSError, ValueError):
        return {}


def unpack(package: Path, folder: Path, kept: tuple[tuple[str, str], ...]) -> None:
    """Put what is ``kept`` of a .deb into ``folder``.

    Raises subprocess.CalledProcessError and tarfile.TarError for a file that is no package.
    """
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as process:
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member, place in _places(archive, kept):
                _put(archive, member, folder / place)
        assert process.stdout is not None
        while process.stdout.read(1 << 20):
            pass  # padding behind the archive; dpkg-deb would complain of a closed pipe
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, "dpkg-deb")


def _places(
    archive: tarfile.TarFile, kept: tuple[tuple[str, str], ...]
) -> Iterator[tuple[tarfile.TarInfo, PurePosixPath]]:
    for member in archive:
        name = member.name.removeprefix("./")
        for start, place in kept:
            rest = name.removeprefix(start)
            libssh = kept is SSH_KEPT and rest.startswith("libssh.so")
            wanted = libssh or (kept is not SSH_KEPT and not _LEFT_OUT.fullmatch(rest))
            if name.startswith(start) and rest and ".." not in rest and wanted:
                yield member, PurePosixPath(place) / rest
                break


def _put(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        # Links between packages would lead out of the folder.
        if "/" not in member.linkname:
            place.symlink_to(member.linkname)
    elif member.isfile():
        content = archive.extractfile(member)
        assert content is not None
        with content, place.open("wb") as file:
            shutil.copyfileobj(content, file, 1 << 20)
        place.chmod(0o755 if member.mode & 0o100 else 0o644)


def finish(folder: Path, name: str, packages: dict[str, str]) -> None:
    """Make the links, and write the stamp; raises OSError where a tool is not there."""
    host = folder / "nsight-systems" / "host-linux-x64"
    if not (host / "libssh.so").exists():
        (host / "libssh.so").symlink_to("libssh.so.4")
    (folder / "bin").mkdir()
    for tool in (_NCU, _NSYS):
        if not (folder / tool).is_file():
            raise FileNotFoundError(f"the packages do not hold {tool}")
        (folder / "bin" / Path(tool).name).symlink_to(Path("..") / tool)
    size_bytes = sum(path.lstat().st_size for path in folder.rglob("*"))
    stamp = {"layout": LAYOUT, "generation": name, "packages": packages, "size_bytes": size_bytes}
    (folder / STAMP).write_text(json.dumps(stamp, indent=2) + "\n")
