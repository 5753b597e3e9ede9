"""Numbers as profilers print them: thousands separators, values that were not measured, unit prefixes.

Never guesses a number: a text that is neither plainly a number nor plainly "not measured" is an error. A
comma is a thousands separator only where every group after it has three digits, so ``1,5`` and
``268.892,48`` (a locale with decimal commas) are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NUMBER_PATTERN = r"^[+-]?(\d+(\.\d*)?|\.\d+|\d{1,3}(,\d{3})+(\.\d+)?)([eE][+-]?\d+)?$"
# What tools print where there is no value; compared in lower case without surrounding blanks.
NOT_MEASURED = ("", "n/a", "na", "nan", "-nan", "+nan", "nan(ind)", "-nan(ind)", "-nan(snan)",
                "inf", "-inf", "+inf", "infinity", "-infinity", "(null)", "no data")  # fmt: skip


@dataclass(frozen=True)
class Parsed:
    """Numbers of a text column: ``values`` float64, null where not measured, shape (n,).

    ``bad_row`` is the first row that is neither a number nor "not measured"; None if all are fine.
    """

    values: pa.Array
    bad_row: int | None = None


def parse_numbers(texts: pa.Array) -> Parsed:
    """Parse a string array; thousands separators only where they are well grouped."""
    # Values repeat (the same kernels over and over), so each distinct text is parsed once.
    encoded = texts.dictionary_encode()
    trimmed = pc.utf8_trim_whitespace(encoded.dictionary)
    missing = pc.is_in(pc.utf8_lower(trimmed), value_set=pa.array(NOT_MEASURED))
    valid = pc.match_substring_regex(trimmed, NUMBER_PATTERN)
    if not pc.all(pc.or_(missing, valid)).as_py():
        return _bad(texts, encoded, pc.invert(pc.or_(missing, valid)))
    digits = pc.ascii_ltrim(pc.replace_substring(trimmed, ",", ""), "+")
    values = pc.cast(pc.if_else(missing, pa.scalar(None, pa.string()), digits), pa.float64())
    too_large = pc.fill_null(pc.is_inf(values), False)
    if pc.any(too_large).as_py():
        return _bad(texts, encoded, too_large)
    return Parsed(values.take(encoded.indices))


def _bad(texts: pa.Array, encoded: pa.DictionaryArray, wrong: pa.Array) -> Parsed:
    return Parsed(pa.nulls(len(texts), pa.float64()), pc.index(wrong.take(encoded.indices), True).as_py())


@dataclass(frozen=True)
class ParsedIntegers:
    """Whole numbers of a text column, shape (n,), int64; ``bad_row`` is the first without one in range."""

    values: np.ndarray
    bad_row: int | None = None


def parse_integers(texts: pa.Array, least: int, greatest: int, factor: float = 1.0) -> ParsedIntegers:
    """Parse a string array of whole numbers within [least, greatest]; nothing may be missing.

    ``factor`` multiplies before rounding: scaled units print whole numbers with decimals.
    """
    values = _plain_integers(texts) if factor == 1.0 else None
    if values is None:
        parsed = parse_numbers(texts)
        if parsed.bad_row is not None:
            return ParsedIntegers(np.zeros(len(texts), np.int64), parsed.bad_row)
        floats = parsed.values.to_numpy(zero_copy_only=False) * factor
        whole = np.rint(floats)
        wrong = ~(np.abs(floats) < 2.0**53)
        if factor == 1.0:
            wrong |= whole != floats
        if wrong.any():
            return ParsedIntegers(np.zeros(len(texts), np.int64), int(np.argmax(wrong)))
        values = whole.astype(np.int64)
    wrong = (values < least) | (values > greatest)
    return ParsedIntegers(values, int(np.argmax(wrong)) if wrong.any() else None)


def _plain_integers(texts: pa.Array) -> np.ndarray | None:
    """Values of a column of digits only, shape (n,); None if it holds any other text."""
    encoded = texts.dictionary_encode()
    if not pc.all(pc.match_substring_regex(encoded.dictionary, r"^\d{1,18}$")).as_py():
        return None
    values: np.ndarray = pc.cast(encoded.dictionary, pa.int64()).to_numpy(zero_copy_only=False)
    column: np.ndarray = values[encoded.indices.to_numpy(zero_copy_only=False)]
    return column


_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
# Spellings of each base unit of the registry; all take a prefix, decimal as the tools print it.
_SPELLINGS: dict[str, tuple[str, ...]] = {
    "cycle": ("cycle", "cycles"),
    "inst": ("inst", "instruction", "instructions"),
    "sector": ("sector", "sectors"),
    "request": ("request", "requests"),
    "byte": ("byte", "bytes", "B"),
    "hz": ("hz", "Hz", "HZ", "cycle/second", "cycle/s"),
    "%": ("%", "percent", "pct"),
    "1": ("", "1", "block", "blocks", "wave", "waves", "pass", "passes", "thread", "threads", "ratio",
          "thread/inst", "inst/inst", "thread_inst/inst", "thread/instruction", "warp"),
    "byte/block": ("byte/block", "bytes/block", "B/block"),
    "register/thread": ("register/thread", "registers/thread", "register", "registers"),
}  # fmt: skip
_FIXED: dict[str, dict[str, float]] = {
    "ns": {"ns": 1.0, "nsecond": 1.0, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6,
           "s": 1e9, "second": 1e9, "sec": 1e9},
    "hz": {"cycle/nsecond": 1e9, "cycle/ns": 1e9, "cycle/usecond": 1e6, "cycle/us": 1e6,
           "cycle/msecond": 1e3, "cycle/ms": 1e3},
}  # fmt: skip
# What counters are given in, most specific first.
COUNTER_UNITS = ("cycle", "inst", "sector", "request", "byte", "hz", "%", "ns", "1")
_PREFIXED = re.compile(r"([kKMGT]?)(.*)", re.DOTALL)


def base_of(unit: str) -> tuple[str, float] | None:
    """The base unit of a counter given in ``unit``, and the factor to it; None for an unknown unit."""
    factors = ((base, unit_factor(unit, base)) for base in COUNTER_UNITS)
    return next(((base, factor) for base, factor in factors if factor is not None), None)


def unit_factor(unit: str, base: str) -> float | None:
    """The factor from ``unit`` to the registry's base unit; None for an unknown unit."""
    text = unit.strip()
    fixed = _FIXED.get(base, {}).get(text)
    if fixed is not None:
        return fixed
    spellings = _SPELLINGS.get(base, ())
    if text in spellings:
        return 1.0
    match = _PREFIXED.fullmatch(text)
    if match and match[1] and match[2] in spellings and match[2]:
        return _PREFIXES[match[1]]
    return None
