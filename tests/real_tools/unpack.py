"""Put NVIDIA's own ncu, nsys and MPS daemon into a cache folder, from Debian's non-free packages.

    python3 tests/real_tools/unpack.py --cache DIR [--generation NAME ...]

Nothing is installed, and root is not needed. A generation that is there already is left as it is. Where one
cannot be had, the reason is printed and kept in DIR/unavailable.json, and the exit status is 0: the tests
that need it are skipped with that reason. Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # started as a file, by make

from real_tools import layout
from real_tools.apt import Mirror, UnavailableError, own_release

# Debian releases worth comparing: ncu 2022.3 with nsys 2022.4, and ncu 2024.1 with nsys 2023.4.
GENERATIONS = ("bookworm", "trixie")
_PARTIAL = ".partial-"
_SPARE_BYTES = 200 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch what is missing; 0 also where it cannot be had, 2 for wrong arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True, help="the folder that holds the tools")
    parser.add_argument(
        "--generation", action="append", help="a Debian release; default: this machine's and all known"
    )
    given = parser.parse_args(arguments)
    cache = given.cache.absolute()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _lock(cache):
            _remove_leftovers(cache)
            reasons = fetch(cache, given.generation)
            _keep(cache, reasons)
    except OSError as error:
        print(f"real tools: {cache} cannot be used: {error}")
        return 0
    for found in layout.generations(cache):
        versions = ", ".join(f"{name} {version}" for name, version in found.packages.items())
        print(f"real tools: {found.folder} ({found.size_bytes / 1e6:,.0f} MB): {versions}")
    for name, reason in reasons.items():
        print(f"real tools: no {name}: {reason}")
    return 0


def fetch(cache: Path, names: Sequence[str] | None = None) -> dict[str, str]:
    """Fetch every generation that is not there; returns why for those that cannot be had."""
    missing = [name for name in names or GENERATIONS if layout.finished(cache, name) is None]
    try:
        own = own_release()
    except UnavailableError as error:
        return dict.fromkeys(missing, str(error))
    if names is None and own not in GENERATIONS and layout.finished(cache, own) is None:
        missing.append(own)
    reasons = {}
    for name in missing:
        try:
            _fetch_one(cache, name, own)
        except UnavailableError as error:
            reasons[name] = str(error)
        except (OSError, subprocess.SubprocessError, tarfile.TarError) as error:
            reasons[name] = f"{type(error).__name__}: {error}"
    return reasons


def _fetch_one(cache: Path, name: str, own: str) -> None:
    with tempfile.TemporaryDirectory(prefix=_PARTIAL, dir=cache) as partial:
        work = Path(partial)
        mirror = Mirror(work / "apt", name, own)
        ours = mirror if name == own else Mirror(work / "apt-own", own, own)
        packages = mirror.packages(list(layout.KEPT))
        (ssh,) = ours.packages([layout.SSH_PACKAGE])
        download_bytes = sum(package.download_bytes for package in (*packages, ssh))
        needed = download_bytes + sum(package.installed_bytes for package in (*packages, ssh)) + _SPARE_BYTES
        free = shutil.disk_usage(cache).free
        if free < needed:
            what = f"{needed / 1e9:.1f} GB are needed while unpacking, and {free / 1e9:.1f} GB are free"
            raise UnavailableError(f"the disk of {cache} is too full: {what}")
        print(f"real tools: downloading {download_bytes / 1e6:,.0f} MB of Debian {name}", flush=True)
        files = mirror.download([package.name for package in packages], work / "packages")
        for package, kept in layout.KEPT.items():
            layout.unpack(files[package], work / "tools", kept)
            files[package].unlink()
        file = ours.download([ssh.name], work / "packages")[ssh.name]
        layout.unpack(file, work / "tools", layout.SSH_KEPT)
        layout.finish(work / "tools", name, {package.name: package.version for package in (*packages, ssh)})
        target = cache / name
        if target.exists():
            shutil.rmtree(target)  # without a stamp, or with one of another layout
        (work / "tools").rename(target)


@contextlib.contextmanager
def _lock(cache: Path) -> Iterator[None]:
    """One at a time: the second finds everything there."""
    with (cache / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_leftovers(cache: Path) -> None:
    for path in cache.glob(f"{_PARTIAL}*"):
        shutil.rmtree(path, ignore_errors=True)


def _keep(cache: Path, reasons: dict[str, str]) -> None:
    path = cache / layout.UNAVAILABLE
    if reasons:
        path.write_text(json.dumps(reasons, indent=2) + "\n")
    else:
        path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
