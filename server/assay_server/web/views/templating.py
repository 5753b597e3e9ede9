"""The templates of the page, the regions that they draw, and their words for numbers and times."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache, partial
from importlib import resources
from typing import Any

from jinja2 import Environment

from assay_core.program import distribution_version
from assay_report.templating import environment
from assay_sampling.running.identity import Condition
from assay_server.web.views.region import Region

STATIC = ("page.css", "live.js")


@cache
def _environment() -> Environment:
    pages = environment("assay_server.web")
    pages.filters |= {each.__name__: each for each in (span, moment, amount, size, percent, condition)}
    pages.filters["figure_id"] = partial(element_id, "f")
    return pages


def rendered(template: str, **values: Any) -> str:
    """A template with its values."""
    return _environment().get_template(template).render(**values)


def part(name: str, **values: Any) -> Region:
    """A region without rows, of the template ``part_NAME``."""
    return Region({"": rendered(f"part_{name}.html.j2", **values)})


def rows(name: str, values_by_key: Mapping[str, Mapping[str, Any]], **same: Any) -> Region:
    """A region with a row of the template ``row_NAME`` for each key, with its values and those of all."""
    pieces = {}
    for key, values in values_by_key.items():
        row = element_id(name, key)
        pieces[row] = rendered(f"row_{name}.html.j2", row=row, **values, **same)
    return Region(pieces)


@cache
def static_files() -> Mapping[str, bytes]:
    """Style and script, as they are in the package."""
    folder = resources.files("assay_server.web") / "static"
    return {name: (folder / name).read_bytes() for name in STATIC}


@cache
def release() -> str:
    """What a page and its server compare: the release, and a hash of templates, style and script."""
    digest = hashlib.sha256()
    for name, data in sorted(static_files().items()):
        digest.update(name.encode() + data)
    folder = resources.files("assay_server.web") / "templates"
    for each in sorted(folder.iterdir(), key=lambda one: one.name):
        digest.update(each.read_bytes())
    return f"{distribution_version()}-{digest.hexdigest()[:10]}"


def element_id(kind: str, name: str) -> str:
    """An ``id`` for an element about something whose name may hold anything."""
    return f"{kind}-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:12]}"


def span(milliseconds: float) -> str:
    """A time span in at most two units: "3 d 4 h", "12 min", "40 s"."""
    seconds = max(0, round(milliseconds / 1000))
    for size, unit, next_size, next_unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            smaller = rest // next_size
            return f"{whole} {unit} {smaller} {next_unit}" if smaller and whole < 10 else f"{whole} {unit}"
    return f"{seconds} s"


def moment(milliseconds: int) -> str:
    """A moment (Unix time) in UTC."""
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def amount(number: float) -> str:
    """A count with separators, short above a million: "12,345", "3.2 M"."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(number) >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:,.0f}"


def size(number: float) -> str:
    """Bytes in binary units: "1.5 GiB"."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(number) >= 1 << power:
            return f"{number / (1 << power):.3g} {unit}"
    return f"{number:,.0f} B"


def percent(value: float | None) -> str:
    """A percentage with the digits that people compare; "-" without one."""
    if value is None:
        return "-"
    return f"{value:.2f} %" if abs(value) < 10 else f"{value:.1f} %"


def special_condition(cache: str | None, clock: object, sm_percent: float | None) -> str:
    """What is special about a condition; "" for free clocks, caches left alone and all SMs."""
    parts = ["flushed caches"] if cache == "all" else []
    if clock not in (None, "none"):
        parts.append(f"clock {clock}")
    if sm_percent is not None and sm_percent < 100:
        parts.append(f"{sm_percent:g} % of the SMs")
    return ", ".join(parts)


def condition(of_run: Condition) -> str:
    """The condition of a run; what was not recorded is not said."""
    if of_run == Condition():
        return "not recorded"
    words = special_condition(of_run.cache, of_run.clock, of_run.sm_percent)
    return words or "free clocks, caches as they are"
