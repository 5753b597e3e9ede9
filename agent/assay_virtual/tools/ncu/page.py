"""Pages of a report: the raw page as CSV in the layout of each version, and as text.

Numbers are printed as by the real tool: in base units whole numbers without decimals, all others with two;
scaled values have six. Columns of metrics are in alphabetical order.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from assay_virtual.tools.columns import Column, Numbers, Texts, repeated
from assay_virtual.tools.environment import version_key
from assay_virtual.tools.kernel_names import named
from assay_virtual.tools.ncu.log import Log
from assay_virtual.tools.ncu.report import IDENTITY, Results
from assay_virtual.tools.options import CommandLine

# Readers take this host name for the mark of synthetic data (assay_sampling.files.synthetic_mark).
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


def print_page(
    results: Results, command: CommandLine, version: str, log: Log, *, metrics: tuple[str, ...] = ()
) -> None:
    """Print a report as the command line asks; ``metrics`` limits the columns (empty: all)."""
    style = PageStyle(
        version=version,
        metrics=metrics,
        base_units=command.text("print-units") == "base",
        floating_point="print-fp" in command,
        kernel_base=command.text("print-kernel-base"),
    )
    if "csv" in command:
        log.write(raw_page_csv(results, style))
    else:
        log.write("".join(f"{line}\n" for line in raw_page_text(results, style)))


def raw_page_csv(results: Results, style: PageStyle) -> str:
    """Header, units row, one row per launch; every cell in quotes."""
    columns, units = page_columns(results, style)
    lines = [[_quoted(name) for name in columns], [_quoted(units.get(name, "")) for name in columns]]
    cells = [_format_cells(column, _quoted) for column in columns.values()]
    return "".join(",".join(row) + "\n" for row in (*lines, *zip(*cells, strict=True)))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _format_cells(column: Texts, form: Callable[[str], str]) -> list[str]:
    """The cells in another form, made once for each distinct text."""
    return Texts(tuple(map(form, column.distinct)), column.index).cells()


def page_columns(results: Results, style: PageStyle) -> tuple[dict[str, Texts], dict[str, str]]:
    """Texts of the cells by column name in order, and the units of those that have one."""
    columns = _identity(results, style)
    units: dict[str, str] = {}
    for name in sorted(set(results.columns.by_name) - set(IDENTITY)):
        if not style.metrics or name in style.metrics:
            columns[name], units[name] = _cells(results.columns.by_name[name], results.units[name], style)
    return columns, units


def raw_page_text(results: Results, style: PageStyle) -> Iterator[str]:
    """The page as text, line by line."""
    columns, units = page_columns(results, style)
    metrics = [name for name in columns if name in units]
    texts = {name: column.cells() for name, column in columns.items()}
    grids, blocks, capabilities = (results.columns.texts(name).cells() for name in ("grid", "block", "cc"))
    devices = results.columns.numbers("device")
    for row in range(results.columns.rows):
        yield f"[{texts['Process ID'][row]}] {results.process_name}@{HOST}"
        yield (
            f"  {texts['Kernel Name'][row]} {grids[row]}x{blocks[row]}, Context 1, Stream "
            f"{texts['Stream'][row]}, Device {devices[row]}, CC {capabilities[row]}"
        )
        for name in metrics:
            yield f"    {name:<70} {units[name]:>15} {texts[name][row]:>20}"
        yield ""


def _identity(results: Results, style: PageStyle) -> dict[str, Texts]:
    table = results.columns
    modern = version_key(style.version) >= (2023, 1)

    def constant(text: str) -> Texts:
        return repeated(text, table.rows)

    def number(name: str) -> Texts:
        return _printed(table.numbers(name), str)

    names = table.texts("name")
    columns = {
        "ID": Texts(tuple(map(str, range(table.rows))), array("q", range(table.rows))),
        "Process ID": number("pid"),
        "Process Name": constant(results.process_name),
        "Host Name": constant(HOST),
    }
    if results.nvtx:
        columns |= {PUSH_POP: table.texts("nvtx"), START_STOP: constant("")}
    columns["Kernel Name"] = Texts(tuple(named(n, style.kernel_base) for n in names.distinct), names.index)
    if not modern:
        columns["Kernel Time"] = _printed(table.numbers("second"), _time)
    columns |= {"Context": number("context"), "Stream": number("stream")}
    if modern:
        columns |= {"Block Size": table.texts("block"), "Grid Size": table.texts("grid")}
        columns |= {"Device": number("device"), "CC": table.texts("cc")}
    return columns


def _time(second: int) -> str:
    return f"2026-Jan-01 {second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02}"


def _printed(values: Numbers, form: Callable[[Any], str]) -> Texts:
    """Numbers as texts, each distinct one printed once."""
    places: dict[Any, int] = {}
    index = array("q", [places.setdefault(value, len(places)) for value in values])
    return Texts(tuple(map(form, places)), index)


def _cells(values: Column, unit: str, style: PageStyle) -> tuple[Texts, str]:
    if isinstance(values, Texts):
        return values, unit
    factor, decimals = 1.0, 2
    if not style.base_units and unit:
        decimals = 6
        greatest = max((value for value in values if not math.isnan(value)), default=0.0)
        factor, unit = next(
            ((f, scaled) for f, scaled in _SCALES.get(unit, ()) if greatest >= f), (1.0, unit)
        )
    plain = decimals == 2 and not style.floating_point

    def form(value: float) -> str:
        return "n/a" if math.isnan(value) else _number(value / factor, decimals, plain=plain)

    return _printed(values, form), unit


def _number(value: float, decimals: int, *, plain: bool) -> str:
    return f"{value:.0f}" if plain and value == int(value) else f"{value:.{decimals}f}"
