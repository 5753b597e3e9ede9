"""Tables of what a report compares: SM shares, flushed caches, noise. None where no runs are compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from assay_server.report.locked_clock import locked_clock_table
from assay_server.report.naming import ABSENT, count, percent, quantity, shown_condition
from assay_server.report.tables import (
    CONDITION,
    Table,
    columns_of,
    flags_text,
    match_text,
    state_text,
    without_empty,
)

Report = Mapping[str, Any]
Entry = Mapping[str, Any]


def compared_tables(report: Report) -> Iterator[Table]:
    """The tables that this report has something to say in."""
    parts = (
        sm_share_table, cold_start_table, locked_clock_table, noise_table, overhead_table, sequence_table,
    )  # fmt: skip
    for make in parts:
        table = make(report)
        if table is not None:
            yield table


def sm_share_table(report: Report) -> Table | None:
    """How much longer each workload takes on a share of the SMs, truly and as each selection predicts."""
    body = []
    for entry in report.get("sm_share", ()):
        shown = (
            entry["workload"], entry["device"], shown_condition(entry), _sms(entry),
            quantity(entry["speedup_true"]),
        )  # fmt: skip
        facts = (_match(entry), flags_text(entry["flags"]))
        for each in entry["predictions"] or [_NO_PREDICTION]:
            state = state_text(entry if entry["status"] != "ok" else each)
            body.append(
                (*shown, each["method"], quantity(each["speedup_predicted"]),
                 percent(each["speedup_error_percent"]), percent(each["error_percent"]), state, *facts)
            )  # fmt: skip
    if not body:
        return None
    columns = columns_of(
        "workload", "GPU", CONDITION, "SMs", "#speedup of all SMs, true", "method", "#predicted",
        "#its error / %", "#error at the share / %", "~status", "match / %", "~flags",
    )  # fmt: skip
    note = (
        "Speedup of all SMs: time at the share / time at 100 %, of the same launches, light level; "
        "predicted: the same of weights x the representatives' times. Both runs are under the same kind "
        "of MPS daemon. Under clock none it is not the ratio of SM cycles."
    )
    return Table("SM shares", *without_empty(columns, tuple(body), "flags"), note)


_NO_PREDICTION: dict[str, Any] = {
    "method": ABSENT, "status": "ok", "reason": "", "speedup_predicted": None, "speedup_error_percent": None,
    "error_percent": None,
}  # fmt: skip


def _sms(entry: Entry) -> str:
    if entry["effective_sms"] is None:
        return ABSENT
    return f"{entry['effective_sms']:,} of {entry['all_sms']:,}"


def _match(entry: Entry) -> str:
    return ABSENT if entry["match"] is None else match_text(entry["match"])


def cold_start_table(report: Report) -> Table | None:
    """How far launches move when caches are flushed between them."""
    body = []
    for entry in report.get("cold_start", ()):
        shown = (
            entry["workload"], entry["device"], shown_condition(entry), count(entry["launches"]),
            percent(entry["weighted_difference_percent"]), percent(entry["median_difference_percent"]),
            *_worst(entry), _instruction_shares(entry),
        )  # fmt: skip
        facts = (entry["quantity"] or ABSENT, _match(entry), flags_text(entry["flags"]))
        for each in entry["selections"] or [_NO_SELECTION]:
            state = state_text(entry if entry["status"] != "ok" else each)
            inside = each["representatives_in_window"]
            seen = ABSENT if inside is None else f"{inside:,} of {each['representatives']:,}"
            body.append(
                (*shown, each["method"], percent(each["weighted_difference_percent"]), seen, state, *facts)
            )
    if not body:
        return None
    columns = columns_of(
        "workload", "GPU", CONDITION, "#launches", "#difference / %", "#median / %", "#worst / %",
        "~worst launch", "instructions moved / %", "method", "#by representatives / %",
        "representatives in the window", "~status", "cost", "match / %", "~flags",
    )  # fmt: skip
    note = (
        "Difference: 100 x the sum of |flushed - warm| / the sum of warm, over the window's launches; by "
        "representatives: the same under a selection's weights. Instructions moved: share of the "
        "instructions in launches whose IPC differs by at least 5, 10, 15, 20 %."
    )
    return Table("Flushed caches", *without_empty(columns, tuple(body), "flags"), note)


_NO_SELECTION: dict[str, Any] = {
    "method": ABSENT, "status": "ok", "reason": "", "representatives": None,
    "representatives_in_window": None, "weighted_difference_percent": None,
}  # fmt: skip


def _worst(entry: Entry) -> tuple[str, str]:
    worst = entry["worst"]
    if worst is None:
        return ABSENT, ABSENT
    return percent(worst["difference_percent"]), f"{worst['launch']:,} {worst['kernel']}"


def _instruction_shares(entry: Entry) -> str:
    return ", ".join(percent(each["share_percent"]) for each in entry["instruction_shares"] or ()) or ABSENT


def noise_table(report: Report) -> Table | None:
    """How much the totals of repeats differ."""
    body = tuple(
        (
            entry["workload"], entry["device"], entry["level"],
            f"{shown_condition(entry)}{', MPS' if entry['under_mps'] else ''}",
            count(entry["repeats"]), percent(entry["relative_standard_deviation_percent"]),
            percent(entry.get("interval_percent")),
            quantity(entry["mean_total"]), f"{entry['quantity'] or ABSENT}", state_text(entry),
            "; ".join(entry["notes"]) or ABSENT, flags_text(entry["flags"]),
        )
        for entry in report.get("noise", ())
    )  # fmt: skip
    if not body:
        return None
    columns = columns_of(
        "workload", "GPU", "level", CONDITION, "#repeats", "#standard deviation / %", "#interval / %",
        "#mean total", "cost", "~status", "~notes", "~flags",
    )  # fmt: skip
    note = (
        "Standard deviation: of the totals over repeats (n - 1), relative to their mean. Interval: half "
        "the width of the 95 % confidence interval of the mean, by Student's t."
    )
    return Table("Noise over repeats", *without_empty(columns, body, "notes", "flags"), note)


def overhead_table(report: Report) -> Table | None:
    """What profilers add to the workloads, against bare runs."""
    body = tuple(
        (
            entry["workload"], entry["device"], entry["level"],
            f"{shown_condition(entry)}{', MPS' if entry['under_mps'] else ''}",
            f"{entry['executions']:g}", quantity(entry["bare_wall_seconds"]), quantity(entry["wall_seconds"]),
            percent(entry["overhead_percent"]), percent(entry["busy_overhead_percent"]), state_text(entry),
            flags_text(entry["flags"]),
        )
        for entry in report.get("overhead", ())
    )  # fmt: skip
    if not body:
        return None
    columns = columns_of(
        "workload", "GPU", "level", CONDITION, "#executions", "#bare / s", "#profiled / s",
        "#overhead / %", "#GPU busy overhead / %", "~status", "~flags",
    )  # fmt: skip
    note = (
        "Wall time of one execution of the command without and with the profiler, its start and report "
        "included; a detailed run has one execution a slice. GPU busy: the same of the driver's utilisation "
        "over time, an estimate."
    )
    return Table("Overhead of profilers", *without_empty(columns, body, "flags"), note)


def sequence_table(report: Report) -> Table | None:
    """Runs that did not launch what the first light run did."""
    body = tuple(
        (
            entry["workload"], entry["device"], entry["level"], shown_condition(entry), entry["run"],
            entry["reference"], count(entry["launches"]), count(entry["reference_launches"]),
            count(entry["differing"]), state_text(entry), flags_text(entry["flags"]),
        )
        for entry in report.get("sequences", ())
    )  # fmt: skip
    if not body:
        return None
    columns = columns_of(
        "workload", "GPU", "level", CONDITION, "run", "compared with", "#launches", "#launches there",
        "#differing", "~status", "~flags",
    )  # fmt: skip
    note = "Launches that differ in kernel, grid or block at the same place, or that one run lacks."
    return Table("Launch sequences that differ", *without_empty(columns, body, "flags"), note)
