"""A folder of executables: the stand-ins under the names of the real tools."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from assay_core.files.private_folders import make_private_folder

BARE_PROGRAM = "assay-virtual"
_MODULES = {"ncu": "ncu.command", "nsys": "nsys.command", BARE_PROGRAM: "bare"}


def write_tool_scripts(directory: str | Path) -> Path:
    """Write ``ncu``, ``nsys`` and ``assay-virtual`` into ``directory`` (made if need be) and return it.

    Each runs this Python with this package, regardless of Python's environment variables. Raises OSError.
    """
    folder = Path(directory)
    make_private_folder(folder)
    packages = [str(_package_root(name)) for name in ("assay_virtual", "assay_sampling")]
    start = "import sys; sys.path[:0] = {!r}; from assay_virtual.tools.{} import main; sys.exit(main())"
    for name, module in _MODULES.items():
        script = folder / name
        temporary = folder / f".{name}.new"
        # -I: neither the job's folder nor PYTHONPATH may shadow the package.
        code = start.format(list(dict.fromkeys(packages)), module)
        temporary.write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -c {shlex.quote(code)} "$@"\n'
        )
        temporary.chmod(0o755)  # in the agent's private folder; a confined run of another user starts them
        temporary.replace(script)
    return folder


def _package_root(package: str) -> Path:
    module = __import__(package)
    return Path(str(module.__file__)).resolve().parents[1]
