"""The metric listing of NVIDIA's own Nsight Compute, asked as a run asks it; it needs no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_agent.execution.tool_version import ToolBox
from assay_agent.profilers.ncu.preflight import CHIPS, listing_of
from assay_core.processes.tool_run import ToolResult, run_tool
from tests.support.agent.nvidia_tools import RealTools


@pytest.mark.parametrize("capability", ["7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "12.0"])
def test_the_real_tool_lists_its_metrics_for_every_chip_that_it_knows(
    nvidia: RealTools, tmp_path: Path, capability: str
) -> None:
    variables = nvidia.environment()
    tool = ToolBox().tool("ncu", ("--help",), variables, tmp_path)

    def ask(argv: list[str], output: Path | None) -> ToolResult:
        return run_tool(
            argv, environment=variables, directory=tmp_path, timeout_seconds=60, stdout_path=output
        )

    listing = listing_of(tool, capability, variables, state=tmp_path / "state", scratch=tmp_path, ask=ask)
    if capability == "12.0":
        assert (listing.names, listing.why) == (None, "the tool lists no chip of compute capability 12.0")
        return
    assert listing.chip == CHIPS[capability][0]
    assert listing.names is not None and len(listing.names) > 1000
    assert listing.lists("smsp__inst_executed.sum") and listing.lists("gpc__cycles_elapsed.max")
    assert listing.lists("dram__bytes_read.sum") and not listing.lists("dram__bytes_op_read.sum")
    assert not listing.lists("sass__inst_executed_global_loads")
    assert listing.lists("smsp__sass_inst_executed_op_ldgsts.sum") == (capability >= "8.0")
