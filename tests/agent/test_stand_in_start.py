"""The stand-ins are started twice a run: what they need not load, they do not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from assay_virtual.tools.scripts import write_tool_scripts

STENCIL = Path(__file__).resolve().parents[2] / "campaigns" / "virtual" / "stencil.toml"
HEAVY = ("numpy", "pyarrow", "pydantic", "importlib.metadata")
CODE = """
import json, sys
from assay_virtual.tools.{tool}.command import main
sys.argv[1:] = {arguments!r}
status = main()
print(json.dumps([status, [name for name in {heavy!r} if name in sys.modules]]))
"""


@pytest.mark.parametrize(
    ("tool", "arguments", "loaded"),
    [
        ("ncu", ["--version"], []),
        ("ncu", ["--help"], []),
        ("ncu", ["--import", "r.ncu-rep", "--csv", "--page", "raw", "--log-file", "page.csv"], []),
        ("nsys", ["--version"], []),
        ("nsys", ["profile", "--help"], []),
        ("nsys", ["export", "-t", "sqlite", "-f", "true", "-o", "t.sqlite", "t.nsys-rep"], []),
        ("ncu", ["-f", "-o", "again", "--launch-count", "9", str(STENCIL)], ["numpy"]),
        ("nsys", ["profile", "-o", "again", "--force-overwrite=true", str(STENCIL)], ["numpy"]),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, list) else value,
)
def test_only_what_runs_a_workload_loads_numpy_and_nothing_loads_more(
    tool: str, arguments: list[str], loaded: list[str], reports: Path
) -> None:
    code = CODE.format(tool=tool, arguments=arguments, heavy=HEAVY)
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=reports,
        env={"ASSAY_VIRTUAL_GPU": '{"architecture": "V100"}', "TMPDIR": str(reports)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(ended.stdout.splitlines()[-1]) == [0, loaded]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a report of each tool."""
    folder = tmp_path_factory.mktemp("reports")
    tools = write_tool_scripts(folder / "tools")
    environment = {"ASSAY_VIRTUAL_GPU": '{"architecture": "V100"}', "TMPDIR": str(folder)}
    for command in (
        [tools / "ncu", "-o", "r", "--launch-count", "20", STENCIL],
        [tools / "nsys", "profile", "-o", "t", STENCIL],
    ):
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return folder
