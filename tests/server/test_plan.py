"""From campaign to runs: order, identifiers, levels, marks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.launch_table import BASELINE, Condition
from assay_server.campaigns.plan import analysis_settings, next_number, plan_campaign
from assay_server.campaigns.spec import load_campaign

TEXT = """\
campaign: lab
synthetic: true
seed: 3
workloads:
  - name: b
    recordings:
      - {device: V100, light: b.sqlite, detailed: b.csv, condition: {clock: base}}
      - {device: A100, light: /elsewhere/b.json}
  - name: a
    recordings:
      - {device: A100, detailed: a.csv}
playback: recorded_time
analysis: {methods: [random: {launches: 5}]}
"""


def test_runs_stand_in_the_order_of_the_file_detailed_first() -> None:
    plan = plan_campaign(load_campaign(TEXT, "c.yaml"), "lab-1", "/base", "c.yaml")
    assert [
        (r.run_id, r.ordinal, r.workload, r.device_kind, r.level, r.recorded_path) for r in plan.runs
    ] == [
        ("lab-1.0000", 0, "b", "V100", "detailed", "/base/b.csv"),
        ("lab-1.0001", 1, "b", "V100", "light", "/base/b.sqlite"),
        ("lab-1.0002", 2, "b", "A100", "light", "/elsewhere/b.json"),
        ("lab-1.0003", 3, "a", "A100", "detailed", "/base/a.csv"),
    ]
    assert [r.condition for r in plan.runs] == [Condition("none", "base", 100.0)] * 2 + [BASELINE] * 2
    assert {(r.synthetic, r.recorded_time, r.profiler, r.repeat) for r in plan.runs} == {
        (True, True, "recorded", 0)
    }
    assert [(s.run_id, s.index, s.launch_skip, s.launch_count) for s in plan.slices] == [
        (r.run_id, 0, 0, 0) for r in plan.runs
    ]


def test_the_analysis_is_told_what_the_file_says() -> None:
    settings = analysis_settings(load_campaign(TEXT, "c.yaml"))
    assert (settings.seed, settings.methods, settings.reference, settings.memory_limit_bytes) == (
        3,
        (("random", {"launches": 5}),),
        None,
        8 << 30,
    )


@given(st.lists(st.integers(1, 20), max_size=20))
def test_a_campaign_takes_the_smallest_free_number(taken: list[int]) -> None:
    number = next_number(taken)
    assert number not in taken and number >= 1
    assert set(range(1, number)) <= set(taken)
