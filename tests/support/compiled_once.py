"""A pytest plugin of ``make test``: in a fresh checkout each worker compiles a share of the files, not all.

All workers collect the same modules in the same order, so each of them would rewrite the assertions of each
module, at the same time as the others: half a minute of both cores.
"""

from __future__ import annotations

import compileall
import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

_SOURCES = ("agent", "client", "protos", "sampling", "server", "tests")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Compile this worker's share, before it collects."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode:
        return
    files = sorted(file for name in _SOURCES for file in (session.config.rootpath / name).rglob("*.py"))
    for file in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        if file.name.startswith("test_"):
            _rewrite(file, session.config)
        else:
            compileall.compile_file(file, quiet=2)


def _rewrite(file: Path, config: pytest.Config) -> None:
    """Keep the module with its assertions rewritten, where pytest looks for it."""
    folder = rewrite.get_cache_dir(file)
    kept = folder / f"{file.stem}{rewrite.PYC_TAIL}"
    if rewrite.try_makedirs(folder) and rewrite._read_pyc(file, kept) is None:
        status, code = rewrite._rewrite_test(file, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, status, kept)
