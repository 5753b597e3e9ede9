from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_sampling.readers.numbers import NOT_MEASURED, parse_integers, parse_numbers, unit_factor


@settings(deadline=None)
@given(st.lists(st.integers(-(10**15), 10**15), min_size=1))
def test_grouped_thousands_are_read_as_the_number_they_were(numbers: list[int]) -> None:
    parsed = parse_numbers(pa.array([f"{number:,}" for number in numbers]))
    assert parsed.bad_row is None
    assert parsed.values.to_pylist() == [float(number) for number in numbers]


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64), min_size=1))
def test_every_finite_float_survives_printing(numbers: list[float]) -> None:
    parsed = parse_numbers(pa.array([repr(number) for number in numbers]))
    assert parsed.bad_row is None
    assert parsed.values.to_pylist() == numbers


@settings(deadline=None)
@given(st.floats(0, 1e12, allow_nan=False), st.integers(0, 3))
def test_fractions_with_groups_are_read_exactly(number: float, digits: int) -> None:
    text = f"{number:,.{digits}f}"
    assert parse_numbers(pa.array([text])).values.to_pylist() == [float(text.replace(",", ""))]


_BADLY_GROUPED = st.from_regex(
    r"-?[0-9]{1,4}(,[0-9]{1,2}|,[0-9]{4,5})(,[0-9]{3})*(\.[0-9]+)?", fullmatch=True
)


@settings(deadline=None)
@given(_BADLY_GROUPED)
def test_commas_that_do_not_stand_between_groups_of_three_are_refused(text: str) -> None:
    assert parse_numbers(pa.array(["1", text, "2"])).bad_row == 1


@pytest.mark.parametrize(
    "text",
    ["1,5", "268.892,48", "4.194.304", "1,234,56", "12345,678", ",123", "1,", "1 234", "0x10", "1_000", "12a",
     "--1", "1e", "1e999", "-", ".", "١٢", "1.2.3", "(1)"],
)  # fmt: skip
def test_what_is_no_number_is_refused(text: str) -> None:
    assert parse_numbers(pa.array(["7", text])).bad_row == 1
    assert parse_integers(pa.array(["7", text]), 0, 100).bad_row == 1


@pytest.mark.parametrize("text", [*NOT_MEASURED, "N/A", "NaN", "-nan", "INF", "  "])
def test_what_was_not_measured_is_null(text: str) -> None:
    parsed = parse_numbers(pa.array(["1", text, "3"]))
    assert parsed.bad_row is None
    assert parsed.values.to_pylist() == [1.0, None, 3.0]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["1", "2.5", "n/a", "1,234", "-3e2"]), max_size=40))
def test_columns_are_parsed_value_by_value(column: list[str]) -> None:
    known = {"1": 1.0, "2.5": 2.5, "n/a": None, "1,234": 1234.0, "-3e2": -300.0}
    assert parse_numbers(pa.array(column, pa.string())).values.to_pylist() == [known[text] for text in column]


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=20), st.booleans())
def test_whole_numbers(numbers: list[int], grouped: bool) -> None:
    column = [f"{number:,}" if grouped else str(number) for number in numbers]
    parsed = parse_integers(pa.array(column), 0, 10**15)
    assert parsed.bad_row is None
    np.testing.assert_array_equal(parsed.values, numbers)


@pytest.mark.parametrize(
    ("column", "bad_row"),
    [
        (["1", "0"], 1),
        (["1", "-1"], 1),
        (["11", "1"], 0),
        (["1.5", "1"], 0),
        (["1", "n/a"], 1),
        (["1", ""], 1),
    ],
)
def test_whole_numbers_out_of_range_or_missing_are_refused(column: list[str], bad_row: int) -> None:
    assert parse_integers(pa.array(column), 1, 10).bad_row == bad_row


def test_scaled_whole_numbers_are_rounded_after_scaling() -> None:
    parsed = parse_integers(pa.array(["4.096", "16.384"]), 0, 10**6, factor=1000.0)
    assert parsed.values.tolist() == [4096, 16384]


@pytest.mark.parametrize(
    ("unit", "base", "factor"),
    [
        ("usecond", "ns", 1e3), ("us", "ns", 1e3), ("msecond", "ns", 1e6), ("ms", "ns", 1e6),
        ("second", "ns", 1e9), ("s", "ns", 1e9), ("nsecond", "ns", 1), ("ns", "ns", 1),
        ("Ghz", "hz", 1e9), ("Mhz", "hz", 1e6), ("hz", "hz", 1), ("cycle/nsecond", "hz", 1e9),
        ("inst", "inst", 1), ("instruction", "inst", 1), ("Kinst", "inst", 1e3), ("Minst", "inst", 1e6),
        ("byte", "byte", 1), ("Kbyte", "byte", 1e3), ("Mbyte", "byte", 1e6), ("Gbyte", "byte", 1e9),
        ("Tbyte", "byte", 1e12), ("Ksector", "sector", 1e3), ("Mcycle", "cycle", 1e6), ("%", "%", 1),
        ("", "1", 1), ("Kbyte/block", "byte/block", 1e3), ("register/thread", "register/thread", 1),
    ],
)  # fmt: skip
def test_units_are_converted_to_the_base_unit(unit: str, base: str, factor: float) -> None:
    found = unit_factor(unit, base)
    assert found is not None and math.isclose(found, factor)


@pytest.mark.parametrize(
    ("unit", "base"), [("", "ns"), ("inst", "cycle"), ("Xbyte", "byte"), ("usecond", "hz"), ("K", "1")]
)
def test_units_of_another_quantity_are_not_known(unit: str, base: str) -> None:
    assert unit_factor(unit, base) is None
