"""Counters under their own names: metrics of a profiler that the registry does not know.

Unit and variant follow from the names that Nsight Compute gives its metrics:
``unit__quantity_details.rollup``.

Source: Nsight Compute documentation, "Metrics Structure".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay_sampling.launches.table import CounterColumn

# Of the name without its rollup; the first that is found counts.
_UNITS = (
    (re.compile(r"(^|_)cycles(_|$)"), "cycle"),
    (re.compile(r"inst(s|ructions)?_?(executed|issued)|_inst_"), "inst"),
    (re.compile(r"sectors"), "sector"),
    (re.compile(r"requests|wavefronts"), "request"),
    (re.compile(r"bytes"), "byte"),
    (re.compile(r"time_duration"), "ns"),
)


def column_of_metric(metric: str) -> CounterColumn:
    """The column of a metric that is kept under its own name."""
    from assay_sampling.launches.table import CounterColumn  # noqa: PLC0415 - Arrow is slow to start

    return CounterColumn(metric, unit_of_metric(metric), metric, variant_of_metric(metric))


def variant_of_metric(metric: str) -> str:
    """``sass`` for a metric that patched instructions count, else ``hardware``."""
    return "sass" if "sass" in metric else "hardware"


def is_rate_of_metric(metric: str) -> bool:
    """Whether an Nsight Compute metric is by its name a rate: of two launches not a sum, but a mean."""
    quantity, _, rollup = metric.partition(".")
    of_quantity = quantity.endswith(("throughput", "_rate")) or "_per_" in quantity
    return of_quantity or any(part in rollup for part in ("pct", "per_", "ratio"))


def unit_of_metric(metric: str) -> str:
    """The base unit of an Nsight Compute metric by its name; "1" where the name does not say."""
    quantity, _, rollup = metric.partition(".")
    if "pct" in rollup or quantity.endswith(("throughput", "_rate")):
        return "%"
    if "per_second" in rollup or "ratio" in rollup or "_per_" in quantity:
        return "1"
    return next((unit for pattern, unit in _UNITS if pattern.search(quantity)), "1")
