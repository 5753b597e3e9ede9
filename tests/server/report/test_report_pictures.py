from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_report.model.scores import Row
from assay_report.pictures.bars import error_against_speedup, error_bars
from assay_report.pictures.svg import Axis, linear_axis, log_axis, number, shortened
from assay_report.reading import read_report

SVG = "{http://www.w3.org/2000/svg}"


def _texts(picture: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def test_bars_stand_at_their_errors(report: dict[str, Any]) -> None:
    rows = read_report(report).rows
    root = ElementTree.fromstring(error_bars("Error", rows))
    bars = [r for r in root.iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None]
    assert [bar.findtext(f"{SVG}title") for bar in bars] == [
        "V100, pks: error 4.12 %, speedup 512",
        "V100, random: error 0.5 %, speedup 512",
        "A100, pks: error 40 %, speedup 512",
    ]
    # The axis ends at 40 %: the tallest bar is as high as the plot, the others in proportion.
    assert [float(bar.attrib["height"]) for bar in bars] == pytest.approx([20.62, 2.5, 200.0], abs=0.01)
    texts = _texts(error_bars("Error", rows))
    assert texts[0] == "Error"
    assert "error / %" in texts
    assert {"V100", "A100", "pks", "random", "0", "10", "20", "30", "40"} <= set(texts)


def test_scatter_has_a_point_for_each_scored_row(report: dict[str, Any]) -> None:
    picture = error_against_speedup("Error against speedup", read_report(report).rows)
    root = ElementTree.fromstring(picture)
    hints = [e.text or "" for e in root.iter(f"{SVG}title")]
    assert sum(hint.startswith("training on ") for hint in hints) == 3
    assert {"100", "1,000", "error / %", "speedup (total / representatives' cost)"} <= set(_texts(picture))


@given(
    st.text(max_size=60),
    st.text(max_size=60),
    st.floats(0, 1e12),
    st.floats(1e-6, 1e12),
    st.text(max_size=20),
)
def test_pictures_are_well_formed_whatever_the_names(
    device: str, workload: str, error: float, speedup: float, reason: str
) -> None:
    row = {
        "workload": workload, "device": device, "condition": {"cache": None}, "method": workload,
        "asked_parameters": {}, "status": "ok", "reason": reason, "error_percent": error, "speedup": speedup,
    }  # fmt: skip
    refused = {**row, "method": device, "error_percent": None, "speedup": None, "status": "refused"}
    for draw in (error_bars, error_against_speedup):
        root = ElementTree.fromstring(draw(device, [Row.model_validate(each) for each in (row, refused)]))
        for element in root.iter():
            for name in ("x", "y", "height", "cx", "cy"):
                assert float(element.attrib.get(name, "0")) < 1e5


@given(st.floats(1e-9, 1e12))
def test_linear_axes_reach_the_largest_value_with_few_round_ticks(largest: float) -> None:
    axis, ticks = linear_axis(largest, 100.0, 0.0)
    assert 2 <= len(ticks) <= 6
    assert largest * 2 >= axis.high / 1.26 or len(ticks) == 2
    assert axis.high >= largest * (1 - 1e-9)
    assert axis.at(0.0) == 100.0
    assert axis.at(axis.high) == pytest.approx(0.0)


@given(st.lists(st.floats(1e-6, 1e12), min_size=1, max_size=5))
def test_log_axes_hold_all_values(values: list[float]) -> None:
    axis, ticks = log_axis(values, 0.0, 100.0)
    assert all(-1e-6 <= axis.at(v) <= 100 + 1e-6 for v in values)
    assert len(ticks) >= 2


def test_axis_places() -> None:
    assert Axis(1.0, 100.0, 0.0, 50.0, log=True).at(10.0) == 25.0
    assert Axis(0.0, 4.0, 200.0, 0.0).at(1.0) == 150.0


def test_labels() -> None:
    assert [number(v) for v in (0.0, 0.25, 12.345, 1234.5, 2e9, 1e-5)] == [
        "0", "0.25", "12.3", "1,234", "2e9", "1e-5",
    ]  # fmt: skip
    assert shortened("abcdefghij", 5) == "ab…ij"
    assert shortened("abc", 5) == "abc"
