"""The tables of a report as texts: HTML and Markdown show the same ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from assay_server.report.naming import (
    ABSENT,
    ASSUMED,
    count,
    match_percent,
    method_names,
    percent,
    quantity,
    share_kind,
    shown_condition,
    text,
)

Report = Mapping[str, Any]
Row = Mapping[str, Any]

CONDITION = "cache, clock, SMs"
# Where the list of them begins in the words of MisalignedError (assay_sampling.errors).
FIRST_DIFFERENCES = "; first differences: "
_GROUPS_SHOWN = 12
_ACCURACIES = (
    "#accuracy, chronological / %", "#chronological, balanced / %",
    "#accuracy, grouped / %", "#grouped, balanced / %",
)  # fmt: skip
_HOW_HELD_OUT = (
    "Chronological: the first 80 % of the window predict the last 20 %; grouped: no signature on both "
    "sides; balanced: mean over groups."
)


@dataclass(frozen=True)
class Column:
    """A heading; ``kind`` is "text", "number" (set to the right) or "long" (a text that may wrap)."""

    name: str
    kind: Literal["text", "number", "long"] = "text"


@dataclass(frozen=True)
class Table:
    """A table of texts; ``note`` says what a reader must know to read it."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def columns_of(*names: str) -> tuple[Column, ...]:
    """Columns from names; one that begins with "#" holds numbers, with "~" long texts."""
    kinds: dict[str, Literal["number", "long"]] = {"#": "number", "~": "long"}
    return tuple(Column(n[1:], kinds[n[0]]) if n[0] in kinds else Column(n) for n in names)


Body = tuple[tuple[str, ...], ...]


def without_empty(columns: tuple[Column, ...], body: Body, *names: str) -> tuple[tuple[Column, ...], Body]:
    """Columns and rows without those of the named columns in which no row says anything."""
    kept = [
        index
        for index, column in enumerate(columns)
        if column.name not in names or any(row[index] != ABSENT for row in body)
    ]
    return tuple(columns[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in body)


def summary_table(report: Report) -> Table:
    """Workload x GPU: the facts that a reader asks for first."""
    rows = tuple(
        (
            entry["workload"], entry["device"], shown_condition(entry), entry["method"],
            state_text(entry), count(entry["launches"]), percent(entry["error_percent"]),
            percent(entry["group_error_percent"]), quantity(entry["speedup"]),
            match_percent(entry["match_percent"]), _shares(entry, "speedup_true"),
            _shares(entry, "speedup_predicted"), percent(entry.get("flushed_difference_percent")),
            percent(entry.get("flushed_difference_of_selection_percent")),
            *_accuracies(entry), percent(entry["agreement_percent"]), percent(entry["ambiguous_percent"]),
            count(entry["unknown_launches"]),
        )
        for entry in report["summary"]
    )  # fmt: skip
    columns = columns_of(
        "workload", "GPU", CONDITION, "method", "~status", "#launches", "#error / %", "#group error / %",
        "#speedup", "#match / %", *_COMPARED, *_LABELLED,
    )  # fmt: skip
    kept, body = without_empty(columns, rows, *[name.removeprefix("#") for name in (*_COMPARED, *_LABELLED)])
    notes = []
    if {column.name for column in kept} & {name.removeprefix("#") for name in _ACCURACIES}:
        notes.append(f"Accuracies are held out, of the model that labels the launches. {_HOW_HELD_OUT}")
    if _light_alone(report):
        notes.append(_LIGHT_ALONE)
    return Table("Workload x GPU", kept, body, " ".join(notes))


_LIGHT_ALONE = (
    "Light runs alone, without counters: each error is against the times of all launches in a light run."
)


def _light_alone(report: Report) -> bool:
    """Whether light runs alone were asked for: there is no detailed one, nor has one failed."""
    made = {run["level"] for run in report["runs"]}
    return "light" in made and "detailed" not in made | {run.get("level") for run in report["failed_runs"]}


_COMPARED = (
    "#speedup of all SMs, true", "#predicted", "#flushed difference / %", "#by representatives / %",
)  # fmt: skip
# Of the models that carry a window's groups to the launches behind it.
_LABELLED = (*_ACCURACIES, "#agreement / %", "#ambiguous / %", "#unknown launches")


def _shares(entry: Row, what: str) -> str:
    """A speedup at each SM share, the share named where there are several."""
    shares = entry.get("sm_share") or []
    if len(shares) == 1:
        return quantity(shares[0][what])
    return ", ".join(f"{s['sm_percent']:g} %{share_kind(s)}: {quantity(s[what])}" for s in shares) or ABSENT


def rows_table(rows: Sequence[Row]) -> Table:
    """Every method on every GPU of one workload."""
    body = tuple(
        (
            row["device"], shown_condition(row), method, state_text(row),
            percent(row["error_percent"]), percent(row["signed_error_percent"]),
            percent(row["group_error_percent"]), quantity(row["speedup"]), _match(row), *_cost(row),
            text((row["selected_on"] or {}).get("device")), count(row["launches"]), count(row["kernels"]),
            count(row["groups"]), count(row["representatives"]), flags_text(row["flags"]),
            "; ".join(row["notes"]) or ABSENT,
        )
        for row, method in zip(rows, method_names(rows), strict=True)
    )  # fmt: skip
    columns = columns_of(
        "GPU", CONDITION, "method", "~status", "#error / %", "#signed error / %", "#group error / %",
        "#speedup", "match / %", "cost", "#total", "#projected", "selected on", "#launches", "#kernels",
        "#groups", "#representatives", "~flags", "~notes",
    )  # fmt: skip
    note = (
        "Match: exact, name and block, position; in brackets what was matched and which of the three counts."
    )
    return Table("Every method on every GPU", *without_empty(columns, body, "flags", "notes"), note)


def _cost(row: Row) -> tuple[str, str, str]:
    cost = row["cost"]
    if cost is None:
        return ABSENT, ABSENT, ABSENT
    return f"{cost['quantity']} / {cost['unit']}", quantity(cost["total"]), quantity(cost["projected"])


def _match(row: Row) -> str:
    return ABSENT if row["match"] is None else match_text(row["match"])


def match_text(match: Mapping[str, Any]) -> str:
    """The percentages of all kinds, and which of them counts."""
    shown = ", ".join(
        f"{'at least ' if kind in match['at_least'] else ''}{match_percent(match[kind])}"
        for kind in ("exact", "name_block", "position")
    )
    return f"{shown} ({match['between']}: {match['kind']})"


def state_text(row: Row) -> str:
    """The status, and why where there is a reason; which launches differ stands in a table of their own."""
    cause, differ, _ = row["reason"].partition(FIRST_DIFFERENCES)
    why = f": {cause}{' (see Launches that differ)' if differ else ''}" if cause else ""
    return f"{row['status']}{why}"


def flags_text(flags: Sequence[Mapping[str, Any]]) -> str:
    """All flags with their details; an assumed condition is said where the condition stands."""
    return "; ".join(
        f"{flag['name']}{' (invalid)' if flag['invalidates'] else ''}"
        f"{': ' + flag['detail'] if flag['detail'] else ''}"
        for flag in flags
        if flag["name"] != ASSUMED
    ) or ABSENT  # fmt: skip


def models_table(rows: Sequence[Row]) -> Table | None:
    """What each classifier of a two-level selection gets right, and the error under its labels."""
    body = []
    for row in rows:
        model = row["model"]
        if model is None or row["selected_on"]["device"] != row["device"]:
            continue
        body += [
            (
                row["device"], shown_condition(row), entry["name"],
                "yes" if entry["name"] == model["chosen"] else "",
                *_accuracies(entry), percent(entry["error_percent"]), percent(entry["group_error_percent"]),
                quantity(entry["speedup"]),
            )
            for entry in model["models"]
        ]  # fmt: skip
    if not body:
        return None
    columns = columns_of(
        "GPU", CONDITION, "model", "labels the launches", *_ACCURACIES, "#error / %", "#group error / %",
        "#speedup",
    )  # fmt: skip
    return Table("Models that label the launches behind the window", columns, tuple(body), _HOW_HELD_OUT)


def _accuracies(facts: Mapping[str, Any]) -> Iterator[str]:
    for split in ("chronological", "grouped"):
        for kind in ("accuracy", "balanced_accuracy"):
            yield percent(facts[f"{split}_{kind}_percent"])


def window_table(rows: Sequence[Row]) -> Table | None:
    """The detailed window that each two-level selection was made on."""
    body = []
    for row in rows:
        window, unknown, model = row["window"], row["unknown"], row["model"]
        if window is None or row["selected_on"]["device"] != row["device"]:
            continue
        body.append(
            (
                row["device"], shown_condition(row), count(window["launches"]),
                count(window["k"]), text(window["cost"]["quantity"]), percent(window["error_percent"]),
                percent(window["group_error_percent"]), quantity(window["speedup"]),
                percent((model or {}).get("agreement_percent")),
                percent((model or {}).get("ambiguous_percent")),
                count((unknown or {}).get("launches")), count((unknown or {}).get("groups")),
            )
        )  # fmt: skip
    if not body:
        return None
    columns = columns_of(
        "GPU", CONDITION, "#launches in the window", "#groups", "cost", "#error / %", "#group error / %",
        "#speedup", "#agreement of the models / %", "#ambiguous / %", "#unknown launches",
        "#unknown signatures",
    )  # fmt: skip
    note = "The window has counters and cycles; its cost is never mixed with the whole workload's time."
    return Table("The window", columns, tuple(body), note)


def groups_table(key: str, selection: Mapping[str, Any]) -> Table | None:
    """The largest groups of a selection, with their first representative; None for a single group."""
    groups = selection.get("groups") or []
    if len(groups) < 2:
        return None
    total = sum(group["launches"] for group in groups) or 1
    largest = sorted(groups, key=lambda group: (-group["launches"], group["id"]))[:_GROUPS_SHOWN]
    body = tuple(
        (
            count(group["id"]), count(group["launches"]), percent(100.0 * group["launches"] / total),
            _instruction_share(group), count(len(group["representatives"])), *_first(group),
        )
        for group in largest
    )  # fmt: skip
    columns = columns_of(
        "#group", "#launches", "#share of launches / %", "#share of instructions / %", "#representatives",
        "#process", "#launch", "#weight", "~kernel", "grid", "block",
    )  # fmt: skip
    shown = f"The {len(largest)} largest of {len(groups):,} groups; launch is 0-based in API order."
    columns, body = without_empty(columns, body, "share of instructions / %")
    return Table(f"Groups of {key}", columns, body, shown)


def _instruction_share(group: Mapping[str, Any]) -> str:
    share = group["instruction_share"]
    return ABSENT if share is None else percent(100.0 * share)


def _first(group: Mapping[str, Any]) -> tuple[str, ...]:
    if not group["representatives"]:
        return (ABSENT,) * 6
    first = group["representatives"][0]
    shapes = (" x ".join(map(str, first[what])) for what in ("grid", "block"))
    return count(first["process"]), str(first["launch"]), quantity(first["weight"]), first["kernel"], *shapes


def runs_table(report: Report) -> Table:
    """Where the numbers come from: every run with its records' hash and its flags."""
    body = tuple(
        (
            run["run_id"], run["workload"], run["device"], run["level"], _condition(run),
            count(run["launches"]), "synthetic" if run["synthetic"] else "measured",
            text(run["content_hash"]), flags_text(run["flags"]),
        )
        for run in report["runs"]
    )  # fmt: skip
    columns = columns_of(
        "run", "workload", "GPU", "level", CONDITION, "#launches", "data", "content hash", "~flags"
    )
    return Table("Where the numbers come from", *without_empty(columns, body, "flags"))


def _condition(run: Mapping[str, Any]) -> str:
    return f"{shown_condition(run)}{', MPS' if run.get('under_mps') else ''}"


def failed_runs_table(report: Report) -> Table | None:
    """Runs that have no data, with why."""
    body = tuple(
        (
            # A report of before has the first and the last alone.
            run["run_id"], *(text(run.get(name)) for name in ("workload", "device", "level")),
            shown_condition(run), run["reason"],
        )
        for run in report["failed_runs"]
    )  # fmt: skip
    columns = columns_of("run", "workload", "GPU", "level", CONDITION, "~reason")
    return Table("Runs that failed", columns, body) if body else None


DEFINITIONS: tuple[tuple[str, str], ...] = (
    (
        "error",
        "100 |projected - total| / total; projected is the sum of weight x cost of the representatives",
    ),
    ("group error", "100 x the sum over groups of |projected - total| / total: errors cannot cancel"),
    ("speedup", "total / sum of the representatives' cost"),
    ("match", "launches matched in an order-preserving alignment / the larger number of launches"),
    ("agreement", "launches behind the window that the three models give the same group"),
    (
        "ambiguous",
        "launches of the window whose signature (kernel, shapes, NVTX path, operator) has several groups",
    ),
    ("unknown", "launches of kernels that the window never saw: each signature is a group of its own"),
    ("assumed", "the campaign file does not say this condition of a recording, so the baseline's is taken"),
    ("cost", "cycles under a profiler and free-running nanoseconds are two costs, never mixed or converted"),
)
