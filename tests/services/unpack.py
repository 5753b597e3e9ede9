"""Put Debian's Prometheus, promtool and bubblewrap into a cache folder; nothing is installed, no root needed.

    python3 tests/services/unpack.py --cache DIR

What is there already is left as it is. If it cannot be had, the reason is printed and kept in
DIR/unavailable.json, and the exit status is 0: the tests are skipped with that reason. Standard library only.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, by make

from real_tools import layout
from real_tools.apt import Mirror, UnavailableError, own_release

PACKAGE = "prometheus"
PACKAGES = {PACKAGE: ("prometheus", "promtool"), "bubblewrap": ("bwrap",)}
PROGRAMS = tuple(program for programs in PACKAGES.values() for program in programs)
_KEPT = (("usr/bin/", "bin/"),)
_STAMP = "stamp.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch it if it is missing; 0 also where it cannot be had, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="the folder that holds it")
    cache = parser.parse_args(arguments).cache.absolute()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with (cache / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            reason = "" if is_whole(cache) else _fetched(cache)
            _keep(cache, reason)
    except OSError as error:
        reason = f"{cache} cannot be used: {error}"
    said = f"no {PACKAGE}: {reason}" if reason else f"{cache}: {(cache / _STAMP).read_text().strip()}"
    print(f"services: {said}")
    return 0


def is_whole(cache: Path) -> bool:
    """Whether the programs were unpacked to the end."""
    return (cache / _STAMP).is_file() and all((cache / "bin" / name).is_file() for name in PROGRAMS)


def why_not(cache: Path) -> str:
    """Why the programs are not there; "" if they are."""
    if is_whole(cache):
        return ""
    try:
        return str(json.loads((cache / layout.UNAVAILABLE).read_text())[PACKAGE])
    except (OSError, ValueError, KeyError):
        return f"nothing is unpacked in {cache}"


def _fetched(cache: Path) -> str:
    """Fetch it; returns why that failed, or ""."""
    try:
        own = own_release()
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=cache) as partial:
            work = Path(partial)
            mirror = Mirror(work / "apt", own, own)
            found = {package.name: package for package in mirror.packages(list(PACKAGES))}
            size = sum(package.download_bytes for package in found.values())
            print(f"services: downloading {size / 1e6:,.0f} MB of Debian {own}", flush=True)
            files = mirror.download(list(PACKAGES), work / "packages")
            (cache / "bin").mkdir(exist_ok=True)
            for name, programs in PACKAGES.items():
                layout.unpack(files[name], work / name, _KEPT)
                for program in programs:
                    (work / name / "bin" / program).replace(cache / "bin" / program)
        versions = {name: package.version for name, package in found.items()}
        (cache / _STAMP).write_text(json.dumps(versions) + "\n")
    except UnavailableError as error:
        return str(error)
    except (OSError, subprocess.SubprocessError, tarfile.TarError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _keep(cache: Path, reason: str) -> None:
    path = cache / layout.UNAVAILABLE
    if reason:
        path.write_text(json.dumps({PACKAGE: reason}, indent=2) + "\n")
    else:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
