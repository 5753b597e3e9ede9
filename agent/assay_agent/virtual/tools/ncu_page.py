"""Pages of a report: the raw page as CSV in the layout of each version, and as text.

Numbers, as the real tool prints them: in base units whole numbers stand without decimals, all others with
two; scaled values have six. Columns of metrics stand in alphabetical order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from assay_agent.virtual.tools.environment import version_key
from assay_agent.virtual.tools.kernel_names import named
from assay_agent.virtual.tools.ncu_results import IDENTITY, Results

# Readers take this host name for the mark of synthetic data (assay_sampling.synthetic).
HOST = "ASSAY_SYNTHETIC"
PUSH_POP = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
START_STOP = "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
_SCALES = {
    "nsecond": ((1e9, "second"), (1e6, "msecond"), (1e3, "usecond")),
    "cycle/second": ((1e9, "cycle/nsecond"), (1e6, "cycle/usecond"), (1e3, "cycle/msecond")),
    "byte": ((1e9, "Gbyte"), (1e6, "Mbyte"), (1e3, "Kbyte")),
    "byte/block": ((1e6, "Mbyte/block"), (1e3, "Kbyte/block")),
}


@dataclass(frozen=True)
class PageStyle:
    """How a page is printed: by which version, with which metrics (empty: all), units and names."""

    version: str
    metrics: tuple[str, ...] = ()
    base_units: bool = False
    floating_point: bool = False
    kernel_base: str = "demangled"


def raw_page_csv(results: Results, style: PageStyle) -> str:
    """Header, units row, one row a launch; every cell in quotes."""
    columns, units = page_columns(results, style)
    header = pa.table({str(i): pa.array([name]) for i, name in enumerate(columns)})
    units_row = pa.table({str(i): pa.array([units.get(name, "")]) for i, name in enumerate(columns)})
    rows = pa.table({str(i): column for i, column in enumerate(columns.values())})
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="all_valid")
    sink = pa.BufferOutputStream()
    for table in (header, units_row, rows):
        pyarrow.csv.write_csv(table, sink, options)
    return str(sink.getvalue().to_pybytes().decode())


def page_columns(results: Results, style: PageStyle) -> tuple[dict[str, pa.Array], dict[str, str]]:
    """Texts of the cells by column name in order, and the units of those that have one."""
    columns = _identity(results, style)
    units: dict[str, str] = {}
    names = sorted(name for name in results.table.column_names if name not in IDENTITY)
    for name in names:
        if not style.metrics or name in style.metrics:
            columns[name], units[name] = _cells(
                results.table[name].combine_chunks(), results.units[name], style
            )
    return columns, units


def raw_page_text(results: Results, style: PageStyle) -> Iterator[str]:
    """The page for people, line by line."""
    columns, units = page_columns(results, style)
    metrics = [name for name in columns if name in units]
    texts = {name: column.to_pylist() for name, column in columns.items()}
    for row in range(results.table.num_rows):
        yield f"[{texts['Process ID'][row]}] {results.process_name}@{HOST}"
        shape = f"{results.table['grid'][row]}x{results.table['block'][row]}"
        yield (
            f"  {texts['Kernel Name'][row]} {shape}, Context 1, Stream {texts['Stream'][row]}, "
            f"Device {results.table['device'][row]}, CC {results.table['cc'][row]}"
        )
        for name in metrics:
            yield f"    {name:<70} {units[name]:>15} {texts[name][row]:>20}"
        yield ""


def _identity(results: Results, style: PageStyle) -> dict[str, pa.Array]:
    table = results.table
    n = table.num_rows
    modern = version_key(style.version) >= (2023, 1)

    def constant(text: str) -> pa.Array:
        return pa.array([text] * n, pa.string())

    def number(name: str) -> pa.Array:
        return table[name].combine_chunks().cast(pa.string())

    names = table["name"].combine_chunks().dictionary_encode()
    shown = pa.array([named(name, style.kernel_base) for name in names.dictionary.to_pylist()], pa.string())
    columns = {
        "ID": pa.array(range(n), pa.int64()).cast(pa.string()),
        "Process ID": number("pid"),
        "Process Name": constant(results.process_name),
        "Host Name": constant(HOST),
    }
    if results.nvtx:
        columns |= {PUSH_POP: table["nvtx"].combine_chunks(), START_STOP: constant("")}
    columns["Kernel Name"] = shown.take(names.indices)
    if not modern:
        seconds = table["second"].to_numpy()
        times = [f"2026-Jan-01 {s // 3600 % 24:02}:{s // 60 % 60:02}:{s % 60:02}" for s in seconds.tolist()]
        columns["Kernel Time"] = pa.array(times, pa.string())
    columns |= {"Context": number("context"), "Stream": number("stream")}
    if modern:
        shape = {"Block Size": "block", "Grid Size": "grid"}
        columns |= {title: table[name].combine_chunks() for title, name in shape.items()}
        columns |= {"Device": number("device"), "CC": table["cc"].combine_chunks()}
    return columns


def _cells(values: pa.Array, unit: str, style: PageStyle) -> tuple[pa.Array, str]:
    if pa.types.is_string(values.type):
        return values, unit
    factor, decimals = 1.0, 2
    if not style.base_units and unit:
        decimals = 6
        greatest = pc.max(values).as_py() or 0.0
        factor, unit = next(
            ((f, scaled) for f, scaled in _SCALES.get(unit, ()) if greatest >= f), (1.0, unit)
        )
    encoded = values.dictionary_encode()
    plain = decimals == 2 and not style.floating_point
    texts = [
        _number(value / factor, decimals, plain=plain) for value in np.asarray(encoded.dictionary).tolist()
    ]
    return pc.fill_null(pa.array(texts, pa.string()).take(encoded.indices), "n/a"), unit


def _number(value: float, decimals: int, *, plain: bool) -> str:
    return f"{value:.0f}" if plain and value == int(value) else f"{value:.{decimals}f}"
