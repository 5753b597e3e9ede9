"""Which Python package a library came with, from pip's records next to it.

Files of such packages are named after the interface alone (``libcublas.so.12``, ``libtorch_cuda.so``), so
the file's name does not tell one release from another, and the package does.
"""

from __future__ import annotations

import re
from pathlib import Path

_FOLDERS = ("site-packages", "dist-packages")
_RECORD = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)\.dist-info")
# Folders of the packages of NVIDIA that are named after a release of CUDA hold several packages.
_OF_SEVERAL = re.compile(r"cu\d+")


def python_package(path: Path, root: Path = Path("/")) -> str:
    """Name and version of the package of the library at ``path``, below ``root``; "" if it has none."""
    at = next((i for i, part in enumerate(path.parts) if part in _FOLDERS), None)
    inner = path.parts[at + 1 :] if at is not None else ()
    if at is None or not inner:
        return ""
    folder = root.joinpath(*path.parts[1 : at + 1])
    try:
        records = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".dist-info"))
    except OSError:
        return ""
    patterns = _names(inner)
    for record in records:
        match = _RECORD.fullmatch(record)
        if match and any(pattern.fullmatch(match["name"].lower().replace("-", "_")) for pattern in patterns):
            return f"{match['name'].replace('_', '-')} {match['version']}"
    return ""


def _names(inner: tuple[str, ...]) -> list[re.Pattern[str]]:
    """Possible names of the package, from the path of a library within the folder of packages."""
    top, library = inner[0].lower(), inner[-1].partition(".so")[0].removeprefix("lib").lower()
    if top == "nvidia" and len(inner) > 2:
        part = library if _OF_SEVERAL.fullmatch(inner[1]) else inner[1].lower()
        return [re.compile(rf"nvidia_{re.escape(part)}(_cu\d+)?")]
    top = top.removesuffix(".libs").replace("-", "_")
    return [re.compile(rf"{re.escape(top)}(_cu\d+)?")]
