"""The counters of simulated launches: their units, and the statistics of a log that they are read from.

The data are in ``simulated.toml`` next to this module. Source: docs/simulator-files.md, "Counters".
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay_sampling.launches.table import CounterColumn

VARIANT = "simulated"


@dataclass(frozen=True)
class SimulatedCounter:
    """A counter of simulated launches.

    ``statistic`` is the running total that a log prints, "" for a number of one launch. Where the log leaves
    it out it is 0 if ``zero_beside``, another counter, is printed, else unknown. ``by_stream``: each stream
    has a running total of its own.
    """

    name: str
    unit: str
    help: str
    statistic: str = ""
    zero_beside: str = ""
    by_stream: bool = False

    def column(self) -> CounterColumn:
        # Programs that must start fast want the names alone, so Arrow is loaded with the first table.
        from assay_sampling.launches.table import CounterColumn  # noqa: PLC0415

        return CounterColumn(self.name, self.unit, self.statistic or self.name, VARIANT)


@cache
def simulated_counters() -> dict[str, SimulatedCounter]:
    """All counters of simulated launches by name, in the order of the data file."""
    text = resources.files("assay_sampling.counters").joinpath("simulated.toml").read_text()
    return {name: SimulatedCounter(name, **entry) for name, entry in tomllib.loads(text).items()}


@cache
def running_totals() -> tuple[SimulatedCounter, ...]:
    """Those that a log prints as running totals."""
    return tuple(counter for counter in simulated_counters().values() if counter.statistic)
