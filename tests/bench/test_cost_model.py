"""The cost model is fitted to what was measured, and says how far it is off."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.bench.scale.cost_model import (
    MEASURED,
    METHODS,
    Line,
    Model,
    Point,
    cpu_points,
    measured,
    off_percent,
    page,
    scratch_points,
)


def test_points_on_a_line_give_that_line() -> None:
    line = Line.through([Point(millions * 1_000_000, 20.0 + 1.5 * millions) for millions in (1, 10, 100)])
    assert (line.fixed, line.each) == (pytest.approx(20.0), pytest.approx(1.5))
    assert line.at(1_000_000_000) == pytest.approx(1520.0)


def test_small_points_count_as_much_as_large_ones() -> None:
    line = Line.through([Point(1_000_000, 2.0), Point(100_000_000, 100.0), Point(100_000_000, 120.0)])
    assert abs(off_percent(line, Point(1_000_000, 2.0))) < 1.0


def test_no_part_of_a_cost_is_negative_and_one_size_gives_no_fixed_part() -> None:
    falling = Line.through([Point(1_000_000, 1.0), Point(10_000_000, 30.0)])
    assert falling.fixed == 0.0 and falling.each > 0.0
    assert Line.through([Point(2_000_000, 3.0)]) == Line(0.0, 1.5)


def test_bytes_a_launch_of_the_largest_recording_count_where_they_grow() -> None:
    growing = [Point(1_000_000, 98.8e6), Point(10_000_000, 1041.6e6)]
    assert Line.of_largest(growing).at(100_000_000) == pytest.approx(10_416e6)


def test_the_scratch_space_of_a_launch_is_its_part_of_the_file_and_the_columns_in_use() -> None:
    said = dict(re.findall(r"(?m)^\| (PKS|Sieve|STEM) \|[^|]*\|[^|]*\| (\d+) \|$", page(_measured())))
    assert {method: int(each) - 64 for method, each in said.items()} == {"PKS": 36, "Sieve": 40, "STEM": 44}


def test_a_step_that_was_not_measured_is_no_point() -> None:
    line = {"method": "stem", "launches": 10, "read_cpu": None, "select_cpu": 2.0, "scratch": None, "peak": 0}
    found = measured([json.dumps(line), ""])
    assert cpu_points(found) == {"read": [], "pks": [], "sieve": [], "stem": [Point(10, 2.0)]}
    assert not any(scratch_points(found).values())


def test_every_method_was_measured_up_to_100_million_launches_and_the_model_holds() -> None:
    model = Model.of(_measured(), "counted")
    assert set(model.steps) == {"read", *METHODS}
    for step, points in model.steps.items():
        assert {point.launches for point in points} == {1_000_000, 10_000_000, 100_000_000}
        assert max(abs(off_percent(model.lines[step], point)) for point in points) < 30.0, step
    assert set(model.space) == set(METHODS)
    assert "1,000,000,000 launches" in page(model.found)


def test_light_recordings_were_measured_at_10_and_100_and_1000_million_launches_and_the_model_holds() -> None:
    model = Model.of(_measured(), "light")
    assert set(model.steps) == {"read", "stem"}
    for step, points in model.steps.items():
        assert {point.launches for point in points} == {10**7, 10**8, 10**9}
        assert max(abs(off_percent(model.lines[step], point)) for point in points) < 30.0, step
    assert all(each["peak"] <= 2 << 30 for each in model.found)


def test_light_recordings_have_lines_of_their_own() -> None:
    found = [_selection(1_000_000, 10.0), _selection(2_000_000, 2.0) | {"recording": "light"}]
    assert Model.of(found, "counted").lines["stem"] == Line(0.0, 10.0)
    assert Model.of(found, "light").lines["stem"] == Line(0.0, 1.0)


def test_ten_billion_launches_are_the_recordings_that_make_them_up() -> None:
    found = [_selection(launches, launches / 1e6) | {"recording": "light"} for launches in (10**7, 10**9)]
    said = page(found)
    # Reading costs 3600 s a million launches here, and the method 1.
    assert "| light: STEM, 1,000 recordings of 10,000,000, each read once | 10,002.8 | 0.4 a worker |" in said
    assert (
        "| light: STEM, 10 recordings of 1,000,000,000, each read once | 10,002.8 | 36.0 a worker |" in said
    )


def test_how_far_a_model_of_the_smaller_sizes_is_off_is_said_at_the_largest() -> None:
    sizes = [(10**7, 10.0), (10**8, 100.0), (10**9, 2000.0)]
    said = page([_selection(*size) | {"recording": "light"} for size in sizes])
    largest = next(line for line in said.splitlines() if line.startswith("| light: STEM | 1,000,000,000 |"))
    assert largest.split(" | ")[2] == "2,000.0"
    assert largest.split(" | ")[4] == "-50 %"


def _selection(launches: int, cpu: float) -> dict[str, Any]:
    return {
        "method": "stem", "launches": launches, "read_cpu": 3600.0 * launches / 1e6, "select_cpu": cpu,
        "peak": 0, "scratch": 36 * launches,
    }  # fmt: skip


def _measured() -> list[dict[str, Any]]:
    return measured(MEASURED.read_text().splitlines())
