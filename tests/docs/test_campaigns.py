"""The example campaigns are valid, planned as their comments say, and lead newcomers to what they need."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from assay_server.campaign_file.reading import read_campaign_file
from assay_server.campaigns.planning.forecast import forecast_campaign
from assay_virtual.workloads.loading import load_workload
from tests.support.server.campaign_files import load_campaign

CAMPAIGNS = Path(__file__).resolve().parents[2] / "campaigns"
REAL = ["parboil", "polybench", "pytorch", "rodinia"]


def campaign_of(name: str) -> tuple[str, Path]:
    path = CAMPAIGNS / f"{name}.yaml"
    return path.read_text(), path


def test_every_file_is_told_and_tested() -> None:
    files = sorted(path.stem for path in CAMPAIGNS.glob("*.yaml"))
    assert files == sorted([*REAL, "virtual"])
    told = re.findall(r"^\| \[(\w+)\.yaml\]", (CAMPAIGNS / "README.md").read_text(), re.MULTILINE)
    assert sorted(told) == files


@pytest.mark.parametrize("name", REAL)
def test_a_real_campaign_is_valid_measured_and_says_how_to_get_it(name: str) -> None:
    text, path = campaign_of(name)
    campaign = load_campaign(text, path.name)
    assert (campaign.campaign, campaign.synthetic) == (name, False)
    assert len(campaign.workloads) >= 3
    assert all(workload.command and workload.timeout_s for workload in campaign.workloads)
    head = text[: text.index("\ncampaign:")]
    assert all(line.startswith("#") for line in head.splitlines())
    assert "# Get it, " in head
    assert re.search(r"# Build it|nothing to build", head)
    # Nothing is vendored: no program of these campaigns stands in the repository.
    document = forecast_campaign(read_campaign_file(text, path.name), str(CAMPAIGNS), {})
    assert all(run["passes"] in (0, 1, 3) and run["passes_exact"] for run in document["runs"])
    named = {w.command[0] for w in campaign.workloads if w.command and "/" in w.command[0]}
    assert {str(CAMPAIGNS / program) for program in named} == set(document["missing_files"])


def test_the_programs_of_the_pytorch_campaign_are_python() -> None:
    text, path = campaign_of("pytorch")
    for workload in load_campaign(text, path.name).workloads:
        assert workload.command is not None
        interpreter, option, program = workload.command
        assert (interpreter, option) == ("python3", "-c")
        tree = ast.parse(program)
        assert any(isinstance(node, ast.For) for node in ast.walk(tree))
        assert "torch.manual_seed(0)" in program


def test_the_virtual_campaign_has_every_virtual_workload_and_is_synthetic() -> None:
    text, path = campaign_of("virtual")
    campaign = load_campaign(text, path.name)
    assert campaign.synthetic
    programs = [CAMPAIGNS / workload.command[0] for workload in campaign.workloads if workload.command]
    assert sorted(programs) == sorted((CAMPAIGNS / "virtual").glob("*.toml"))
    assert [load_workload(program).workload for program in programs] == [w.name for w in campaign.workloads]
    document = forecast_campaign(read_campaign_file(text, path.name), str(CAMPAIGNS), {})
    assert document["missing_files"] == []
    # Three GPUs, nine workloads; cycles, features, light, flushed, half of the SMs, all of them under MPS.
    assert (document["total"]["runs"], document["total"]["slices"]) == (3 * 9 * 6, 3 * 9 * (2 + 1 + 1 + 2))
