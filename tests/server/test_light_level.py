"""What measures light runs: the keys ``light`` and ``workloads[].kineto`` of the campaign file."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from assay_core.records.attempt import AttemptKey
from assay_core.records.campaign import AttemptState
from assay_core.records.work import CommandSource
from assay_sampling.errors import CampaignError
from assay_server.campaigns.planning.plan import plan_campaign
from assay_server.campaigns.scheduling.leases import Lease
from assay_server.rpc.handlers.agents import work_of
from assay_server.store.model import Attempt
from tests.support.server.campaign_files import load_campaign

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


def test_a_workload_that_traces_itself_is_measured_by_its_trace_in_all_light_runs() -> None:
    text = (
        TEXT.format(light="light: cupti\nbare: true")
        + "  - {name: b, command: [./b], kineto: out/b.json.gz}\n"
    )
    plan = plan_campaign(load_campaign(text, "c.yaml"), "lab-1", "/base", "c.yaml")
    made = {(run.workload, run.level, run.profiler) for run in plan.runs}
    assert made == {
        ("a", "bare", "bare"), ("a", "detailed", "nsight_compute"), ("a", "light", "cupti"),
        ("b", "bare", "bare"), ("b", "detailed", "nsight_compute"), ("b", "light", "kineto"),
    }  # fmt: skip
    [first] = [piece for piece in plan.slices if piece.run_id == plan.runs[-1].run_id]
    attempt = Attempt(AttemptKey(first.run_id, 0, 1, 1), AttemptState.LEASED, "a", "a", "s", "gpu", 0, 0)
    work = work_of(Lease(attempt, plan.runs[-1], first), 1000)
    assert (work.profiler, work.command and work.command.kineto_file) == ("kineto", "out/b.json.gz")
    assert {run.command.kineto_file for run in plan.runs if run.command and run.workload == "a"} == {""}
    # What an earlier release stored has no such field.
    stored = json.loads(json.dumps(asdict(plan.runs[0].command))) if plan.runs[0].command else {}
    del stored["kineto_file"]
    assert CommandSource(**{**stored, "argv": tuple(stored["argv"])}) == plan.runs[0].command


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("command: [./b], kineto: /tmp/b.json", "kineto: '/tmp/b.json' is outside the folder of this file"),
        ("command: [./b], kineto: ../b.json", "kineto: '../b.json' is outside the folder of this file"),
        (
            "command: [./b], kineto: '*.pt.trace.json'",
            "is a pattern, and traces of several processes are not",
        ),
        ("command: [./b], kineto: ''", "kineto: it is empty"),
        (
            "kineto: b.json, recordings: [{device: V100, light: b.json}]",
            "kineto: this key needs a 'command' in the workload",
        ),
    ],
)
def test_a_trace_that_is_not_one_file_of_the_folder_is_an_error_on_its_line(entry: str, fault: str) -> None:
    with pytest.raises(CampaignError, match=rf"c\.yaml:7: field workloads.1..*{fault}"):
        load_campaign(TEXT.format(light="") + f"  - {{name: b, {entry}}}\n", "c.yaml")
