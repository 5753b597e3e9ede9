"""Pictures of groups and launches, of errors at a glance, and the files that a Markdown report refers to."""

from __future__ import annotations

import copy
import re
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from assay_report.model.drawn import ByLaunch, Composition
from assay_report.pictures import svg
from assay_report.pictures.launch_pictures import by_launch, group_composition
from assay_report.pictures.overview import error_and_speedup
from assay_report.reading import read_report
from tests.support.server.report_forms import markdown_files, render_html, render_markdown

HOSTILE = "void f<script>alert('x')</script>(int*, char const&)"
SVG = "{http://www.w3.org/2000/svg}"
COMPOSITION = {
    "kernels": [HOSTILE, "gemm"], "other_kernels": 3, "groups_together": 7,
    "groups": [
        {"id": 0, "launches": 900, "launches_percent": [60.0, 30.0, 0.0], "cost_percent": [10.0, 5.0, 0.0]},
        {"id": 1, "launches": 50, "launches_percent": [0.0, 0.0, 5.0], "cost_percent": [0.0, 40.0, 40.0]},
        {"id": None, "launches": 50, "launches_percent": [0.0, 5.0, 0.0], "cost_percent": [0.0, 5.0, 0.0]},
    ],
}  # fmt: skip
BY_LAUNCH = {
    "quantity": "duration_ns", "unit": "ns", "launches": 1000, "bin_starts": [0, 250, 500, 750],
    "least": [10.0, 20.0, None, 10.0], "mean": [15.0, 30.0, None, 500.0], "most": [20.0, 40.0, None, 1000.0],
    "process_starts": [500], "representatives": 5,
    "marks": {"row": [0, 900], "group": [0, 1], "value": [10.0, 1000.0]},
}  # fmt: skip


@pytest.fixture
def pictured(report: dict[str, Any]) -> dict[str, Any]:
    report["drawn"] = {
        "training/pks": {
            "level": "light", "condition": report["rows"][0]["condition"], "synthetic": True,
            "cost": {"quantity": "duration_ns", "unit": "ns"},
            "composition": copy.deepcopy(COMPOSITION), "by_launch": copy.deepcopy(BY_LAUNCH),
        }
    }  # fmt: skip
    return report


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def hints(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{SVG}title")]


def test_groups_stand_in_the_order_of_their_cost_with_a_bar_for_launches_and_one_for_time() -> None:
    picture = group_composition("Groups", Composition.model_validate(COMPOSITION), "time")
    shown = texts(picture)
    assert [text for text in shown if text.startswith("group ")] == ["group 1", "group 0"]
    assert (shown.count("launches"), shown.count("time")) == (2, 2)
    assert {"80", "5", "15", "90"} <= set(shown)  # totals at the ends of the bars
    assert "Not shown: 7 more groups, 5 % of the cost." in shown
    assert f"group 0, launches: 60 % are {HOSTILE}" in hints(picture)
    assert "group 1, time: 40 % are 3 other kernels" in hints(picture)
    root = ElementTree.fromstring(picture)
    description = root.findtext(f"{SVG}desc") or ""
    assert "group 1: 5 % of the launches, 80 % of the time" in description


def test_colour_is_not_all_that_tells_kernels_apart() -> None:
    shown = texts(group_composition("Groups", Composition.model_validate(COMPOSITION), "time"))
    for letter in "abc":
        assert shown.count(letter) >= 2, "in the legend and in a bar"


def test_a_long_kernel_name_is_cut_on_the_picture_and_whole_in_its_hint() -> None:
    name = f"void at::native::kernel<{'float, ' * 60}int>(int)"
    picture = group_composition(
        "Groups", Composition.model_validate({**COMPOSITION, "kernels": [name, "gemm"]}), "time"
    )
    (shown,) = (text for text in texts(picture) if text.startswith("void at::"))
    assert len(shown) < 120 and "…" in shown and shown.endswith("int>(int)")
    assert name in hints(picture)
    width = float(ElementTree.fromstring(picture).attrib["width"])
    assert svg.text_width(shown) + 32 < width


def test_launches_are_drawn_as_ranges_with_gaps_and_marks() -> None:
    picture = by_launch("Launches", ByLaunch.model_validate(BY_LAUNCH))
    root = ElementTree.fromstring(picture)
    ranges, means = (path.attrib["d"] for path in root.iter(f"{SVG}path"))
    assert ranges.count("M") == 3, "the bin without a value is a gap"
    assert re.findall(r"[ML]", means) == ["M", "L", "M"], "and the line does not cross it"
    shown = texts(picture)
    assert "least to largest of about 250 launches" in shown
    assert "2 of the 5 representatives" in shown
    assert {"10", "100", "1,000"} <= set(shown), "a hundredfold range has a logarithmic axis"
    assert "representative of group 1: launch 900, duration_ns 1,000" in hints(picture)
    assert "another process begins" in hints(picture)


def test_the_range_reaches_exactly_from_least_to_largest() -> None:
    entry = {**BY_LAUNCH, "least": [0.0, 1, 2, 3], "mean": [1, 2, 3, 4], "most": [2, 3, 4, 4]}
    entry["marks"] = {"row": [], "group": [], "value": []}
    ranges = next(
        ElementTree.fromstring(by_launch("Launches", ByLaunch.model_validate(entry))).iter(f"{SVG}path")
    ).attrib["d"]
    tops = [float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)H", ranges)]
    bottoms = [float(y) for y in re.findall(r"V([\d.]+)", ranges)]
    # The axis goes from 0 at 312 px to 4 at 92 px: 55 px a unit.
    assert tops == pytest.approx([202, 147, 92, 92])
    assert bottoms == pytest.approx([312, 257, 202, 147])


def test_the_overview_has_a_mark_for_each_score_in_both_panels(report: dict[str, Any]) -> None:
    report["summary"][1]["error_percent"] = None
    picture = error_and_speedup("Overview", read_report(report).summary)
    found = hints(picture)
    assert "training on V100, pks: error 4.125" in found
    assert "training on V100, pks: speedup 512.5" in found
    assert not any("A100, pks: error" in hint for hint in found)
    assert "1 of 2 have no score; the table says why." in texts(picture)
    assert "no score" in (ElementTree.fromstring(picture).findtext(f"{SVG}desc") or "")


def test_every_gpu_of_the_overview_has_another_mark(report: dict[str, Any]) -> None:
    entry = report["summary"][0]
    many = [{**entry, "device": f"a GPU with the long name number {number}"} for number in range(8)]
    root = ElementTree.fromstring(
        error_and_speedup("Overview", read_report({**report, "summary": many}).summary)
    )
    width = float(root.attrib["width"])
    legend = [e for e in root.iter(f"{SVG}text") if (e.text or "").startswith("a GPU")]
    assert len(legend) == 8
    assert all(float(e.attrib["x"]) + svg.text_width(e.text or "") <= width for e in legend), "it wraps"
    marks = [e for e in root.iter() if e.attrib.get("class", "").startswith("mark")]
    shapes = {(e.tag, e.attrib.get("points", "").count(" "), e.attrib["class"]) for e in marks}
    assert len(shapes) == 8


def test_marks_of_equal_values_do_not_hide_each_other(report: dict[str, Any]) -> None:
    entry = report["summary"][0]
    equal = [{**entry, "workload": f"w{n}", "device": f"GPU {m}"} for n in range(2) for m in range(2)]
    root = ElementTree.fromstring(
        error_and_speedup("Overview", read_report({**report, "summary": equal}).summary)
    )
    circles = [float(e.attrib["cy"]) for e in root.iter(f"{SVG}circle")]
    squares = [
        float(e.attrib["y"]) + 4.5 for e in root.iter(f"{SVG}rect") if e.attrib.get("class") == "mark s1"
    ]
    # The first of each is the legend's; then a mark a workload in either panel.
    assert squares[1] - circles[1] == squares[2] - circles[2] == 11


def test_a_page_and_a_markdown_show_the_same_pictures(pictured: dict[str, Any]) -> None:
    files = markdown_files(pictured)
    text = files.pop("report.md")
    assert re.findall(r"^!\[.*\]\(([^)]+)\)$", text, re.MULTILINE) == list(files)
    assert list(files) == [
        f"report-pictures/{name}.svg"
        for name in ("overview", "error-against-speedup", "training-error", "training-pks-groups",
                     "training-pks-launches")
    ]  # fmt: skip
    page = render_html(pictured)
    for picture in files.values():
        assert picture in page
        assert texts(picture)[0].endswith("(synthetic)")
        root = ElementTree.fromstring(picture)
        assert root.attrib["role"] == "img" and root.find(f"{SVG}desc") is not None
    lines = [line for line in text.splitlines() if not line.startswith("![")]
    assert [x for x in lines if x] == [x for x in render_markdown(pictured).splitlines() if x]


def test_pictures_of_two_workloads_with_similar_names_do_not_replace_each_other(
    pictured: dict[str, Any],
) -> None:
    other = copy.deepcopy(pictured["rows"][0])
    other["workload"] = "tr/../aining"
    pictured["rows"].append({**copy.deepcopy(other), "workload": "tr  aining"})
    pictured["rows"].append({**other, "workload": "tr aining"})
    files = markdown_files(pictured)
    assert {"report-pictures/tr-aining-error.svg", "report-pictures/tr-aining-error-2.svg"} <= set(files)
    assert all(re.fullmatch(r"report(\.md|-pictures/[a-z0-9_.-]+\.svg)", path) for path in files)


def test_a_report_of_before_has_no_such_pictures_and_is_drawn_all_the_same(report: dict[str, Any]) -> None:
    assert "drawn" not in report
    assert not any("groups" in path for path in markdown_files(report))


def test_colours_stay_apart_for_everybody_and_from_the_ground() -> None:
    """Simulated after Machado, Oliveira and Fernandes (2009), Table 1; contrast as WCAG 2.1, 1.4.11 asks."""
    light, dark = svg._STYLE.split("@media (prefers-color-scheme: dark)")
    for style in (light, dark):
        colours = np.array([rgb(found) for found in re.findall(r"\.s\d \{ fill: (#\w{6})", style)])
        ground = rgb(re.findall(r"\.paper \{ fill: (#\w{6})", style)[0])
        assert len(colours) == svg.SERIES_COLOURS
        for colour in colours:
            lighter, darker = sorted((luminance(colour), luminance(ground)), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= 3
        for seen in (np.eye(3), PROTANOPIA, DEUTERANOPIA):
            places = [lab(linear(colour) @ seen.T) for colour in colours]
            assert min(float(np.linalg.norm(a - b)) for a, b in combinations(places, 2)) > 20


PROTANOPIA = np.array(
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
)
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)


def rgb(colour: str) -> np.ndarray:
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def linear(colour: np.ndarray) -> np.ndarray:
    return np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)


def luminance(colour: np.ndarray) -> float:
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def lab(light: np.ndarray) -> np.ndarray:
    to_xyz = np.array(
        [
            [0.4124564, 0.3575761, 0.1804375],
            [0.2126729, 0.7151522, 0.0721750],
            [0.0193339, 0.1191920, 0.9503041],
        ]
    )
    xyz = to_xyz @ np.clip(light, 0, 1) / [0.95047, 1.0, 1.08883]
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])
