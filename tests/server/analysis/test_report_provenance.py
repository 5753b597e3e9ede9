"""What a report says of where its numbers come from, and which compared runs it flags; exact values."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from assay_sampling.launches.table import BASELINE, Device
from assay_server.analysis.runs.request import RunData, RunFacts
from tests.support.server.compared_runs import AT_ALL, AT_HALF, FREE, HALF, KERNELS, Lab, analysed
from tests.support.server.report_forms import render_html, render_markdown

FLUSHED = replace(BASELINE, cache="all")
LIGHT = RunFacts(
    gpus=("Tesla V100",),
    drivers=("550.163",),
    tools=(("nsys", "2023.4.4"),),
    libraries={"libcublas": {"edges:1": "12.4.5.8"}, "libcudart": {"edges:c": "12.4.127"}},
    programs=("ab" * 32,),
    days=("2026-11-20",),
)
CACHE = "0123456789abcdef"
DETAILED = replace(LIGHT, tools=(("ncu", "2024.1.1"),), days=("2026-11-21",), compile_caches=(CACHE,))


@pytest.fixture
def lab(store_run: Any, counters: Any) -> Lab:
    return Lab(store_run, counters)


def flags(entry: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(flag["run_id"], flag["name"], flag["detail"]) for flag in entry["flags"]]


def test_the_entry_of_a_workload_names_all_that_its_numbers_rest_on(lab: Lab) -> None:
    light, detailed = lab.light(FREE, facts=LIGHT), lab.detailed(FREE[:5], facts=DETAILED)
    bare = RunData("c-1.b", "training", "V100", "bare", live=True, facts=replace(LIGHT, tools=()))
    report = analysed(light, detailed, bare)
    assert report["provenance"] == [
        {
            "workload": "training", "device": "V100", "synthetic": False, "gpus": ["Tesla V100"],
            "drivers": ["550.163"],
            "tools": [
                {"name": "nsys", "version": "2023.4.4", "levels": ["light"]},
                {"name": "ncu", "version": "2024.1.1", "levels": ["detailed"]},
            ],
            "libraries": [
                {"name": "libcublas", "versions": ["12.4.5.8"]},
                {"name": "libcudart", "versions": ["12.4.127"]},
            ],
            "library_notes": [], "bundles": [], "programs": ["ab" * 32], "compile_caches": [CACHE],
            "measured_on": {"first": "2026-11-20", "last": "2026-11-21"},
            "runs": [light.run_id, detailed.run_id, "c-1.b"], "flags": [],
        }
    ]  # fmt: skip
    assert all(row["flags"] == [] for row in report["rows"])
    for page in (render_markdown(report).replace("\\", ""), render_html(report)):
        assert "What the numbers rest on" in page
        assert "nsys 2023.4.4 (light), ncu 2024.1.1 (detailed)" in page
        assert "libcublas 12.4.5.8, libcudart 12.4.127" in page
        assert "2026-11-20 to 2026-11-21" in page
        assert "compile cache 0123456789ab" in page


def test_a_light_run_with_another_library_than_the_detailed_one_is_flagged(lab: Lab) -> None:
    other = replace(DETAILED, libraries={**LIGHT.libraries, "libcublas": {"edges:2": "12.1.3.1"}})
    light, detailed = lab.light(FREE, facts=LIGHT), lab.detailed(FREE[:5], facts=other)
    report = analysed(light, detailed, methods=(("pks", {"k": 1}),))
    [row] = report["rows"]
    assert row["runs"] == [detailed.run_id, light.run_id]
    expected = f"libcublas 12.1.3.1 instead of 12.4.5.8 in {light.run_id}"
    assert flags(row) == [(detailed.run_id, "libraries_differ", expected)]
    assert report["summary"][0]["flags"] == ["libraries_differ"]
    assert [name for _, name, _ in flags(report["provenance"][0])] == ["libraries_differ"]
    assert not row["flags"][0]["invalidates"]
    assert expected in render_html(report)


def test_the_same_version_of_another_build_is_another_library(lab: Lab) -> None:
    other = replace(LIGHT, libraries={"libcublas": {"edges:9": "12.4.5.8"}})
    report = analysed(lab.light(FREE, facts=LIGHT), lab.light(FREE, facts=other, repeat=1))
    [noise] = report["noise"]
    assert [name for _, name, _ in flags(noise)] == ["libraries_differ"]


def test_baseline_and_flushed_by_different_releases_of_ncu_are_flagged(lab: Lab) -> None:
    newer = replace(DETAILED, tools=(("ncu", "2026.1"),), drivers=("570.1",))
    warm, flushed = lab.detailed(FREE, facts=DETAILED), lab.detailed(FREE, FLUSHED, facts=newer)
    report = analysed(lab.light(FREE, facts=LIGHT), warm, flushed)
    [entry] = report["cold_start"]
    assert {(run, name, detail) for run, name, detail in flags(entry)} == {
        (flushed.run_id, "tools_differ", f"ncu 2026.1 instead of 2024.1.1 in {warm.run_id}"),
        (flushed.run_id, "drivers_differ", f"driver 570.1 instead of 550.163 in {warm.run_id}"),
    }
    # Not so the rows: nothing of the flushed run is in them.
    assert all(row["flags"] == [] for row in report["rows"])


def test_shares_made_with_other_tools_are_flagged(lab: Lab) -> None:
    runs = [
        lab.light(FREE, facts=LIGHT),
        lab.light(AT_HALF, HALF, under_mps=True, facts=replace(LIGHT, tools=(("nsys", "2022.4"),))),
        lab.light(AT_ALL, under_mps=True, facts=LIGHT),
    ]
    [entry] = analysed(*runs)["sm_share"]
    assert [name for _, name, _ in flags(entry)] == ["tools_differ"]


def test_runs_of_one_workload_that_ran_different_programs_are_flagged(lab: Lab) -> None:
    rebuilt = replace(DETAILED, programs=("cd" * 32,))
    light, detailed = lab.light(FREE, facts=LIGHT), lab.detailed(FREE[:5], facts=rebuilt)
    report = analysed(light, detailed, methods=(("pks", {"k": 1}),))
    expected = f"program {'cd' * 6} instead of {'ab' * 6} in {light.run_id}"
    [row], [entry] = report["rows"], report["provenance"]
    assert flags(row) == flags(entry) == [(detailed.run_id, "programs_differ", expected)]
    assert not row["flags"][0]["invalidates"]
    assert entry["programs"] == ["ab" * 32, "cd" * 32]
    assert expected in render_html(report)


def test_one_program_is_not_mentioned_in_a_page(lab: Lab) -> None:
    report = analysed(lab.light(FREE, facts=LIGHT), lab.detailed(FREE[:5], facts=DETAILED))
    assert report["provenance"][0]["programs"] == ["ab" * 32]
    for page in (render_markdown(report), render_html(report)):
        assert "abababab" not in page


def test_what_is_not_known_is_not_compared(lab: Lab) -> None:
    partly = replace(
        LIGHT, libraries={"libcudnn": {"x": "9"}}, drivers=(), tools=(("nsys", ""),), programs=()
    )
    report = analysed(
        lab.light(FREE), lab.light(FREE, facts=LIGHT, repeat=1), lab.light(FREE, facts=partly, repeat=2)
    )
    assert flags(report["noise"][0]) == []
    assert flags(report["provenance"][0]) == []


def test_a_run_without_facts_is_known_by_the_metadata_of_its_launches(store_run: Any) -> None:
    metadata = {
        "tool": "Nsight Systems", "tool_version": "2021.5", "driver_version": "470.1",
        "devices": (Device(0, "A100-SXM4"),),
    }  # fmt: skip
    old = store_run("A100", "light", KERNELS, duration_ns=FREE, metadata=metadata)
    newer = store_run(
        "A100", "light", KERNELS, duration_ns=FREE, metadata={**metadata, "tool_version": "2023.4"},
        run={"repeat": 1},
    )  # fmt: skip
    [entry] = analysed(old, newer)["provenance"]
    assert (entry["gpus"], entry["drivers"], entry["measured_on"]) == (["A100-SXM4"], ["470.1"], None)
    assert [tool["version"] for tool in entry["tools"]] == ["2021.5", "2023.4"]
    assert flags(entry) == [
        (newer.run_id, "tools_differ", f"Nsight Systems 2023.4 instead of 2021.5 in {old.run_id}")
    ]


def test_a_damaged_file_leaves_the_report_to_say_so(store_run: Any, tmp_path: Any) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"not this")
    run = replace(store_run("V100", "light", KERNELS, duration_ns=FREE), files=(str(broken),))
    report = analysed(run)
    assert report["provenance"][0]["gpus"] == []
    assert {row["status"] for row in report["rows"]} == {"failed"}
    assert str(tmp_path) not in json.dumps(report)


def test_many_differences_are_counted(lab: Lab) -> None:
    first = replace(LIGHT, libraries={f"lib{n}": {"a": "1"} for n in range(9)})
    second = replace(LIGHT, libraries={f"lib{n}": {"b": "2"} for n in range(9)})
    report = analysed(lab.light(FREE, facts=first), lab.light(FREE, facts=second, repeat=1))
    [(_, _, detail)] = flags(report["provenance"][0])
    assert detail.startswith("lib0 2 instead of 1 in ") and detail.endswith("; 3 more")


def test_synthetic_runs_have_no_day_and_are_labelled(lab: Lab) -> None:
    virtual = replace(LIGHT, drivers=(), libraries={}, library_notes=("a virtual GPU runs no CUDA",), days=())
    report = analysed(
        lab._store(
            "V100", "light", KERNELS, duration_ns=FREE, metadata={"origin": "synthetic"},
            run={"live": True, "synthetic": True, "facts": virtual},
        ),
        synthetic=True,
    )  # fmt: skip
    [entry] = report["provenance"]
    assert (entry["synthetic"], entry["measured_on"]) == (True, None)
    page = render_markdown(report).replace("\\", "")
    assert "| a virtual GPU runs no CUDA |" in page
