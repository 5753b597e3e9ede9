"""What measures light runs: the key ``light`` of the campaign file."""

from __future__ import annotations

import pytest

from assay_sampling.errors import CampaignError
from assay_server.campaigns.plan import plan_campaign
from assay_server.campaigns.spec import load_campaign

TEXT = """\
campaign: lab
gpus: [V100]
{light}
conditions: [sm_percent: 50]
workloads:
  - {{name: a, command: [./a]}}
"""


@pytest.mark.parametrize(
    ("light", "profiler"),
    [
        ("", "nsight_systems"),
        ("light: nsys", "nsight_systems"),
        ("light: auto", "auto"),
        ("light: cupti", "cupti"),
    ],
)
def test_every_light_run_is_made_with_it_and_no_detailed_one(light: str, profiler: str) -> None:
    plan = plan_campaign(load_campaign(TEXT.format(light=light), "c.yaml"), "lab-1", "/base", "c.yaml")
    made = {(run.level, run.profiler) for run in plan.runs}
    assert made == {("detailed", "nsight_compute"), ("light", profiler)}
    assert sum(run.level == "light" for run in plan.runs) == 3


def test_virtual_gpus_have_no_cupti() -> None:
    text = TEXT.format(light="light: cupti") + "synthetic: true\n"
    with pytest.raises(CampaignError, match=r"c\.yaml:3: field light: virtual GPUs have no CUPTI"):
        load_campaign(text, "c.yaml")


def test_another_tool_is_an_error_on_its_line() -> None:
    with pytest.raises(CampaignError, match="field light: 'ncu' is not 'nsys', 'cupti' or 'auto'"):
        load_campaign(TEXT.format(light="light: ncu"), "c.yaml")
