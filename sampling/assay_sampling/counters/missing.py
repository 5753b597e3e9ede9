"""Errors about missing counters: they name all of them at once, ncu's metrics, and the remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from assay_sampling.counters.definitions import metric_of
from assay_sampling.errors import CounterUnavailableError

if TYPE_CHECKING:
    import pyarrow as pa

COLLECTED_BY = "METHOD"


def how_to_collect(counters: Sequence[str], method: str = "", table: pa.Table | None = None) -> str:
    """The remedy for missing counters: the metrics to ask ncu for, and the verb that prints the commands.

    Args:
        method: the selection method that needs them; "": a verb that is not a method.
        table: the launches without them; their GPU decides which metrics exist.
    """
    if table is not None and _is_simulated(table):
        return "choose what a simulator's log holds ('assay docs simulator-files' lists it)"
    capability = "" if table is None else _compute_capability(table)
    metrics, without = [], []
    for name in counters:
        try:
            metrics.append(metric_of(name, capability))
        except CounterUnavailableError:
            without.append(name)
    parts = []
    if metrics:
        gpu = f" --gpu {capability}" if capability else ""
        parts.append(
            f"collect {','.join(dict.fromkeys(metrics))} "
            f"('assay metrics {method or COLLECTED_BY}{gpu}' prints the commands)"
        )
    if without:
        parts.append(f"{', '.join(without)} cannot be collected on compute capability {capability}")
    return "; ".join(parts)


def cannot_be_read(name: str, why: str) -> tuple[str, str]:
    """Cause and remedy for a counter that a file has and its reader could not read."""
    return f"the counter {name!r} is needed but cannot be read: {why}", _EXPORT_PAGE


_EXPORT_PAGE = "give the raw page instead: ncu --import REPORT --csv --page raw --print-units base"


def counters_missing(
    table: pa.Table, names: Sequence[str], source: str, unreadable: Mapping[str, str], method: str = ""
) -> CounterUnavailableError | None:
    """The error for those of the counters ``names`` that launches of ``table`` lack; None if all are there.

    It names ``source``, each counter and how many launches lack it, why a reader left it out, and the other
    variant if that one was measured (variants are never mixed).
    """
    from assay_sampling.launches.table import counter_columns  # noqa: PLC0415 - Arrow is slow to start

    present = {column.name for column in counter_columns(table.schema)}
    lacking = {}
    for name in names:
        missing = table[name].null_count if name in present else table.num_rows
        if missing or name not in present:
            lacking[name] = missing
    if not lacking:
        return None
    closed = [name for name in lacking if name in unreadable]
    wholly = [name for name in lacking if lacking[name] == table.num_rows and name not in closed]
    partly = [name for name in lacking if lacking[name] < table.num_rows and name not in closed]
    causes = [cannot_be_read(name, unreadable[name])[0] for name in closed]
    causes += [_wholly(wholly)] if wholly else []
    causes += [_partly(table, name, lacking[name]) for name in partly]
    remedies = [_EXPORT_PAGE] if closed else []
    remedies += [how_to_collect(wholly, method, table)] if wholly else []
    if partly:
        metrics = ",".join(metric_of(name) for name in partly)
        remedies.append(f"profile the launches that lack {metrics} again, or choose features without it")
    remedy = "; ".join(remedies)
    twins = [twin for name in lacking if (twin := _twin(name)) in present]
    if twins:
        them, they = ("it", "was") if len(twins) == 1 else ("they", "were")
        counts = "counts" if len(twins) == 1 else "count"
        shown = ", ".join(repr(twin) for twin in twins)
        remedy += f" ({shown} {they} measured, but {them} {counts} other instructions and cannot replace it)"
    return CounterUnavailableError(source, "; ".join(causes), remedy)


def require_counters(
    table: pa.Table,
    names: Sequence[str],
    source: str,
    unreadable: Mapping[str, str] | None = None,
    *,
    method: str = "",
) -> None:
    """Check that every counter was measured for every launch of ``table``.

    ``unreadable`` says why a reader left counters out
    (:attr:`assay_sampling.launches.in_memory.Launches.unreadable`).

    Raises CounterUnavailableError that names ``source`` and all counters that launches lack, with the metrics
    to collect for the selection method ``method``.
    """
    error = counters_missing(table, names, source, unreadable or {}, method)
    if error is not None:
        raise error


def _wholly(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"the counter {names[0]!r} was not measured"
    return f"{len(names)} counters were not measured: {', '.join(repr(name) for name in names)}"


def _partly(table: pa.Table, name: str, missing: int) -> str:
    import pyarrow.compute as pc  # noqa: PLC0415

    launch = table["launch"][pc.index(table[name].is_null(), True).as_py()].as_py()
    return (
        f"the counter {name!r} was not measured (n/a or NaN) for {missing:,} of {table.num_rows:,} launches, "
        f"first for launch {launch}"
    )


def _twin(name: str) -> str:
    return name.removesuffix("_sass") if name.endswith("_sass") else f"{name}_sass"


def _is_simulated(table: pa.Table) -> bool:
    from assay_sampling.launches.table import table_metadata  # noqa: PLC0415

    return table_metadata(table.schema).simulated


def _compute_capability(table: pa.Table) -> str:
    """The compute capability of the file's GPUs, "" where it is not known or they differ."""
    from assay_sampling.launches.table import table_metadata  # noqa: PLC0415

    capabilities = {device.compute_capability for device in table_metadata(table.schema).devices}
    return capabilities.pop() if len(capabilities) == 1 else ""
