"""A private folder of executables: the stand-ins under the names of the real tools."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from assay_sampling.private_folders import make_private_folder

_MODULES = {"ncu": "ncu", "nsys": "nsys", "assay-virtual": "bare"}


def write_tool_scripts(directory: str | Path) -> Path:
    """Write ``ncu``, ``nsys`` and ``assay-virtual`` into ``directory`` (made if need be) and return it.

    Each runs this Python with this package, whatever the environment says about Python. Raises OSError.
    """
    folder = Path(directory)
    make_private_folder(folder)
    packages = [str(_package_root(name)) for name in ("assay_agent", "assay_sampling")]
    start = "import sys; sys.path[:0] = {!r}; from assay_agent.virtual.tools.{} import main; sys.exit(main())"
    for name, module in _MODULES.items():
        script = folder / name
        temporary = folder / f".{name}.new"
        # -I: neither the job's folder nor PYTHONPATH may put another package in the way.
        code = start.format(list(dict.fromkeys(packages)), module)
        temporary.write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -c {shlex.quote(code)} "$@"\n'
        )
        temporary.chmod(0o700)
        temporary.replace(script)
    return folder


def _package_root(package: str) -> Path:
    module = __import__(package)
    return Path(str(module.__file__)).resolve().parents[1]
