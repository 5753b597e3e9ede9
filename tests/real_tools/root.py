"""Unpack Debian's packages, with whatever they need that this machine lacks, into a folder as under ``/``.

Nothing is installed and no root is needed: programs find their libraries there by LD_LIBRARY_PATH. What the
machine has already is not fetched again. If it cannot be had, the reason is kept in CACHE/unavailable.json.
Standard library only.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from real_tools import layout
from real_tools.apt import Mirror, UnavailableError, own_release

LIBRARIES = "usr/lib/x86_64-linux-gnu"


@dataclass(frozen=True)
class Wanted:
    """Packages that make one tool.

    Args:
        name: what messages call it.
        packages: asked for by name; what they need comes with them.
        proof: a file under the root that is there only if the tool is.
    """

    name: str
    packages: tuple[str, ...]
    proof: str


def root(cache: Path) -> Path:
    """The folder that stands for ``/``."""
    return cache / "root"


def provide(cache: Path, wanted: Wanted) -> str:
    """Have the tool in ``cache``; returns why it is not there, or ""."""
    cache = cache.absolute()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            reason = "" if is_whole(cache, wanted) else _fetched(cache, wanted)
            _keep(cache, wanted, reason)
    except OSError as error:
        return f"{cache} cannot be used: {error}"
    return reason


def is_whole(cache: Path, wanted: Wanted) -> bool:
    """Whether these very packages were unpacked to the end."""
    try:
        stamp = json.loads((cache / layout.STAMP).read_text())
        return stamp["asked"] == list(wanted.packages) and (root(cache) / wanted.proof).is_file()
    except (OSError, ValueError, KeyError, TypeError):
        return False


def why_not(cache: Path, wanted: Wanted) -> str:
    """Why the tool is not there; "" if it is."""
    if is_whole(cache, wanted):
        return ""
    return layout.reasons(cache).get(wanted.name) or f"nothing is unpacked in {cache}"


def _fetched(cache: Path, wanted: Wanted) -> str:
    try:
        own = own_release()
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=cache) as partial:
            work = Path(partial)
            mirror = Mirror(work / "apt", own, own)
            names = mirror.lacking(list(wanted.packages))
            found = mirror.packages(names)
            size = sum(package.download_bytes for package in found)
            print(f"{wanted.name}: downloading {size / 1e6:,.0f} MB of Debian {own}", flush=True)
            files = mirror.download(names, work / "packages")
            for name in names:
                subprocess.run(
                    ["dpkg-deb", "--extract", files[name], work / "root"], check=True, capture_output=True
                )
            shutil.rmtree(root(cache), ignore_errors=True)
            (work / "root").replace(root(cache))
        stamp = {"asked": list(wanted.packages), "packages": {each.name: each.version for each in found}}
        (cache / layout.STAMP).write_text(json.dumps(stamp, indent=2) + "\n")
    except UnavailableError as error:
        return str(error)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}"
    return "" if is_whole(cache, wanted) else f"the packages do not hold {wanted.proof}"


def _keep(cache: Path, wanted: Wanted, reason: str) -> None:
    path = cache / layout.UNAVAILABLE
    if reason:
        path.write_text(json.dumps({wanted.name: reason}, indent=2) + "\n")
    else:
        path.unlink(missing_ok=True)
