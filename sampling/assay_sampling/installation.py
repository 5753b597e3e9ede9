"""How Assay was installed here, and so which command adds a part of it."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

_DISTRIBUTION = "assay-gpu"


def install_command(extra: str) -> str:
    """The command that adds an extra to this installation, from a checkout if it was installed from one.

    Source: PEP 610, "Recording the Direct URL Origin of installed distributions" (``direct_url.json``).
    """
    folder, editable = _origin()
    if folder is None or not (folder / "pyproject.toml").is_file():
        requirement = shlex.quote(f"{_DISTRIBUTION}[{extra}]")
    else:
        requirement = ("-e " if editable else "") + shlex.quote(f"{folder}[{extra}]")
    return f"{_pip()} install {requirement}"


def _origin() -> tuple[Path | None, bool]:
    """The folder that this distribution was installed from, and whether it is used in place."""
    # Here, because it loads the e-mail package, a third of the start of a program that imports our errors.
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415

    try:
        text = distribution(_DISTRIBUTION).read_text("direct_url.json")
        document = json.loads(text or "{}")
        address = urlsplit(str(document.get("url", "")))
        editable = bool(document.get("dir_info", {}).get("editable"))
    except (PackageNotFoundError, OSError, ValueError, AttributeError):
        return None, False
    return (Path(unquote(address.path)) if address.scheme == "file" else None), editable


def _pip() -> str:
    """``pip``, if that is this Python's; else pip by way of this Python."""
    pip_path = shutil.which("pip")
    beside = Path(sys.executable).with_name("pip")
    is_ours = pip_path is not None and Path(pip_path) == beside
    return "pip" if is_ours else f"{shlex.quote(sys.executable)} -m pip"
