"""NVIDIA's own tools in the cache of ``make real-tools``: which there are, and running them safely.

Every process runs under the supervisor of the agent, in a time limit, with a home of its own, by which
a test finds whatever was left behind.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from real_tools import layout
from real_tools.layout import Generation

from assay_core.processes.tool_run import EndingSteps, run_tool
from tests.support.agent.stand_ins import Answer

SECONDS = 120.0
_QUICK = EndingSteps(interrupt_seconds=2.0, terminate_seconds=2.0)


def parameters() -> list[Any]:
    """A pytest parameter for each generation; where there is none, one that is skipped and says why."""
    given = os.environ.get("ASSAY_REAL_TOOLS")
    if not given:
        return [_skipped("'make test-real-tools' runs it")]
    cache = Path(given)
    found = [pytest.param(one, id=one.name) for one in layout.generations(cache)]
    reasons = layout.reasons(cache) or ({} if found else {"tools": f"nothing is unpacked in {cache}"})
    return [*found, *(_skipped(f"no {name}: {reason}", name) for name, reason in reasons.items())]


def _skipped(reason: str, name: str = "none") -> Any:
    return pytest.param(None, id=name, marks=pytest.mark.skip(reason=f"NVIDIA's own tools: {reason}"))


@dataclass(frozen=True)
class RealTools:
    """One generation, run in ``folder``."""

    generation: Generation
    folder: Path

    def environment(self, *, driver: bool = False) -> dict[str, str]:
        """``driver``: with a libcuda.so.1 that finds no device; without, there is no such library."""
        made = {
            "PATH": f"{self.generation.folder / 'bin'}:/usr/bin:/bin",
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "LC_ALL": "C",
            "NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT": "1",
        }
        return {**made, "LD_LIBRARY_PATH": str(self.generation.driver)} if driver else made

    def run(
        self, program: Path, *arguments: str | Path, environment: Mapping[str, str] | None = None
    ) -> Answer:
        output = self.folder / "standard-output"
        ended = run_tool(
            [str(program), *map(str, arguments)],
            environment=environment or self.environment(),
            directory=self.folder,
            timeout_seconds=SECONDS,
            stdout_path=output,
            ending=_QUICK,
        )
        assert not ended.timed_out, f"{program} {arguments} hangs: {output.read_text()}{ended.stderr}"
        assert ended.exit_code is not None, f"{program} {arguments}: {ended.ending}"
        text = output.read_text()
        output.unlink()
        return Answer(ended.exit_code, text, ended.stderr)

    def ncu(self, *arguments: str | Path, driver: bool = False) -> Answer:
        return self.run(self.generation.ncu, *arguments, environment=self.environment(driver=driver))

    def nsys(self, *arguments: str | Path, driver: bool = False) -> Answer:
        return self.run(self.generation.nsys, *arguments, environment=self.environment(driver=driver))

    @property
    def ncu_version(self) -> str:
        return _version(self.ncu("--version"))

    @property
    def nsys_version(self) -> str:
        return _version(self.nsys("--version"))

    def metric_names(self, chip: str) -> set[str]:
        """What ``--query-metrics`` lists for a chip, without suffixes."""
        rows = csv.reader(io.StringIO(self.ncu("--query-metrics", "--chips", chip, "--csv").output))
        return {row[0] for row in rows if len(row) > 4}


def _version(answer: Answer) -> str:
    found = re.search(r"[Vv]ersion (\d+(?:\.\d+){2,3})", answer.output)
    assert found is not None
    return found[1]


def processes_of(home: Path) -> dict[int, str]:
    """Command lines, by process, of all living processes whose HOME it is, or lies in it."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if command and any(v.startswith(f"HOME={home}".encode()) for v in variables):
            found[int(process.name)] = command
    return found
