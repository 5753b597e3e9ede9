"""What is claimed of the product on a GPU, from a campaign's report and runs: it holds, fails, or why not."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assay_sampling.running.validity import invalidates
from tests.gpu.plan import LEAST_LAUNCHES, LIGHT_ALONE, LONG_KERNELS, SHORT_KERNELS

Run = Mapping[str, Any]
State = Literal["holds", "fails", "not shown"]
_OWN_LINE = re.compile(r'^\{"assay_workload".*\}$', re.MULTILINE)
_VIRTUAL_LINE = re.compile(r"^assay virtual \S+: process \d+ made (\d+) launches$", re.MULTILINE)
_LEAST_MATCH_PERCENT = 99.0
# Flags and failures that say that the tracer's records are not all launches.
_LOST = frozenset({"launches_dropped", "launches_missing", "dropped_events"})
_SMS_PER_TPC = 2
# Half of the SMs: as fast at best, half as fast at worst, and the noise of two runs.
_LEAST_SPEEDUP, _MOST_SPEEDUP = 0.9, 2.3
# Empty caches make nothing faster, but for noise.
_MOST_FLUSHED = 1.1
_SHAPE = ["launch", "kernel_id", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"]
_LAUNCH = [*_SHAPE, "duration_ns"]
_KINDS = {LONG_KERNELS: " (long kernels)", SHORT_KERNELS: " (3-microsecond kernels)"}


@dataclass
class Claim:
    """One claim. ``lines`` are its numbers for people, ``values`` the same for programs."""

    name: str
    state: State = "not shown"
    why: str = ""
    lines: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)

    def judge(self, faults: Sequence[str]) -> Claim:
        """Holds where there are numbers, each of them one, and no faults."""
        faults = [*faults, *(f"{place} is no number" for place in _not_numbers(self.values))]
        if self.lines:
            self.state = "fails" if faults else "holds"
        elif not self.why:
            self.why = "no run of this campaign says anything about it"
        if faults:
            self.state, self.why = "fails", "; ".join(faults)
        return self

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "state": self.state, "why": self.why,
            "lines": self.lines, "values": self.values,
        }  # fmt: skip


def _not_numbers(values: Any, place: str = "") -> Iterator[str]:
    """Where values are not finite."""
    if isinstance(values, Mapping):
        for name, value in values.items():
            yield from _not_numbers(value, f"{place} {name}".strip())
    elif isinstance(values, list):
        for value in values:
            yield from _not_numbers(value, place)
    elif isinstance(values, float) and not math.isfinite(values):
        yield place


def flaws_of(run: Run) -> list[str]:
    """The flags that make a run invalid, and why it failed; empty for a run that claims may rest on."""
    names = sorted({flag["name"] for flag in run["flags"] if invalidates(flag["name"])})
    return names + (
        [(run["failure"] or {}).get("failure_class", "failed")] if run["state"] == "failed" else []
    )


@dataclass(frozen=True)
class Measured:
    """What a part's campaign brought: its report, its runs, and where their records are."""

    part: str
    report: Mapping[str, Any]
    runs: Sequence[Run]
    records: Path
    least_launches: int = LEAST_LAUNCHES

    def of(self, level: str, **condition: Any) -> list[Run]:
        """Runs that are done and valid, of a level, under a condition where one is given."""
        return [
            run
            for run in self.runs
            if run["state"] == "done"
            and not flaws_of(run)
            and run["level"] == level
            and all(run["condition"][key] == value for key, value in condition.items())
        ]

    def flawed(self, entry: Mapping[str, Any]) -> list[str]:
        """What is wrong with the runs that an entry of the report rests on, a sentence each."""
        used = set(entry.get("runs") or ())
        return [
            f"{entry['workload']} rests on {run['run_id']} ({run['level']}), {', '.join(flaws_of(run))}"
            for run in self.runs
            if run["run_id"] in used and flaws_of(run)
        ]

    def table(self, run: Run, columns: Sequence[str]) -> pa.Table:
        """Columns of all slices of a run."""
        return pa.concat_tables(
            pq.read_table(self.records / name, columns=list(columns)) for name in run["files"]
        )

    def under_mps(self, run: Run) -> bool:
        """Whether a run was made under an MPS daemon, as the report says."""
        return any(r["run_id"] == run["run_id"] and r["under_mps"] for r in self.report.get("runs", ()))


def claims_of(measured: Measured) -> list[Claim]:
    """Every claim that a part's campaign can show; a claim that cannot be computed fails alone."""
    makers = [_complete, _traced, _overhead]
    if measured.part not in LIGHT_ALONE:
        makers += [_cost_per_launch, _alignment, _effective_sms, _share_speedup, _flushed, _two_level, _noise]
    return [_guarded(make, measured) for make in makers]


def _guarded(make: Callable[[Measured], Claim], measured: Measured) -> Claim:
    """The claim, failed where it cannot be computed."""
    try:
        return make(measured)
    except Exception as error:  # noqa: BLE001 - hours on a GPU must not be lost for one number
        name = make.__name__.strip("_").replace("_", " ")
        return Claim(name, "fails", f"it cannot be computed: {type(error).__name__}: {error}")


def own_line(run: Run) -> dict[str, Any]:
    """What the workload itself said last: {} where it was silent, launches alone of a virtual one."""
    text = last_attempt(run).get("log") or ""
    if lines := _OWN_LINE.findall(text):
        document: dict[str, Any] = json.loads(lines[-1])
        return document
    counts = [int(count) for count in _VIRTUAL_LINE.findall(text)]
    return {"launches": sum(counts)} if counts else {}


def last_attempt(run: Run) -> Mapping[str, Any]:
    """The last attempt of the last slice; {} where there was none."""
    attempts: Sequence[Mapping[str, Any]] = run["attempts"]
    return attempts[-1] if attempts else {}


def agreement(first: Measured, second: Measured) -> Claim:
    """Whether two tracers saw the same launches of the same workloads, and how their times differ."""
    return _guarded(lambda both: _agreement(both, second), first)


def _agreement(first: Measured, second: Measured) -> Claim:
    claim, faults = Claim("two tracers agree launch for launch"), []
    others = {run["workload"]: run for run in _plain_light(second)}
    for run in _plain_light(first):
        other = others.pop(run["workload"], None)
        if other is None:
            continue
        one, two = first.table(run, _LAUNCH), second.table(other, _LAUNCH)
        same = one.num_rows == two.num_rows and one.select(_SHAPE).equals(two.select(_SHAPE))
        total, other_total = (float(pc.sum(t["duration_ns"]).as_py() or 0) for t in (one, two))
        percent = 100 * (other_total / total - 1) if total else float("nan")
        claim.lines.append(
            f"{run['workload']}: {one.num_rows:,} and {two.num_rows:,} launches, "
            f"{'the same' if same else 'not the same'}; GPU time {percent:+.2f} %"
        )
        claim.values[run["workload"]] = {"same": same, "difference_percent": percent}
        if not same:
            faults.append(f"{run['workload']} differs")
    return claim.judge(faults)


def _plain_light(measured: Measured) -> list[Run]:
    """The first light run of each workload, all SMs, no MPS."""
    runs = [r for r in measured.of("light", sm_percent=100.0) if r["files"] and not measured.under_mps(r)]
    return [run for run in runs if run["repeat"] == 0]


def _complete(measured: Measured) -> Claim:
    claim = Claim("runs complete, flags")
    faults = []
    for run in measured.runs:
        flags = [flag["name"] for flag in run["flags"]]
        if run["state"] != "done":
            why = (run["failure"] or {}).get("failure_class", run["state"])
            faults.append(f"{run['run_id']} ({run['workload']}, {run['level']}) {why}")
        elif flags:
            claim.lines.append(
                f"{run['run_id']} {run['workload']} {run['level']}: {', '.join(sorted(set(flags)))}"
            )
    done = sum(run["state"] == "done" for run in measured.runs)
    if measured.runs:
        claim.lines.insert(0, f"{done} of {len(measured.runs)} runs done")
    claim.values = {"runs": len(measured.runs), "done": done}
    return claim.judge(faults)


def _traced(measured: Measured) -> Claim:
    claim, faults, most = Claim("kernels traced = launches issued"), [], 0
    for run in measured.runs:
        lost = _LOST & set(flaws_of(run)) if run["level"] == "light" else ()
        faults += [f"{_named(run)}: {', '.join(sorted(lost))}"] if lost else []
    for run in measured.of("light"):
        issued, traced = own_line(run).get("launches"), run["launches"]
        if issued is None:
            continue
        most = max(most, issued)
        claim.lines.append(f"{_named(run)}: {traced:,} traced of {issued:,} issued, {issued - traced:,} lost")
        claim.values[run["run_id"]] = {"workload": run["workload"], "issued": issued, "traced": traced}
        if issued != traced:
            faults.append(f"{_named(run)} lost {issued - traced:,}")
    if measured.part == "launches" and most < measured.least_launches:
        faults.append(f"the longest run has {most:,} launches, not {measured.least_launches:,}")
    return claim.judge(faults)


def _overhead(measured: Measured) -> Claim:
    claim, faults = Claim("tracer overhead against a bare run"), []
    for entry in measured.report.get("overhead", ()):
        if entry["level"] != "light" or entry["under_mps"] or entry["status"] != "ok":
            continue
        if flawed := measured.flawed(entry):
            faults += flawed
            continue
        kind = _KINDS.get(entry["workload"], "")
        claim.lines.append(
            f"{entry['workload']}{kind}: wall {entry['bare_wall_seconds']:.3f} s bare, "
            f"{entry['wall_seconds']:.3f} s traced ({entry['overhead_percent']:+.1f} %)"
            f"{_own_seconds(measured, entry['workload'])}"
        )
        claim.values[entry["workload"]] = entry["overhead_percent"]
    return claim.judge(faults)


def _own_seconds(measured: Measured, workload: str) -> str:
    """The same by the workload's own clocks, without the start of process and profiler, "" without clocks."""
    parts = []
    for what in ("issue_seconds", "gpu_seconds"):
        bare, traced = (
            [s for run in runs if (s := own_line(run).get(what)) is not None]
            for runs in (
                [r for r in measured.of("bare") if r["workload"] == workload],
                [r for r in measured.of("light") if r["workload"] == workload and not measured.under_mps(r)],
            )
        )
        if bare and traced and min(bare) > 0:
            percent = 100 * (fmean(traced) / fmean(bare) - 1)
            parts.append(f"{what} {fmean(bare):.3f} s bare, {fmean(traced):.3f} s traced ({percent:+.1f} %)")
    return "".join(f"; {part}" for part in parts)


def _cost_per_launch(measured: Measured) -> Claim:
    """Seconds of the profiler a launch: (wall time of a slice - bare wall time) / its launches."""
    claim = Claim("ncu cost per launch by set")
    costs: dict[str, list[float]] = {}
    bare = {run["workload"]: last_attempt(run).get("wall_seconds") for run in measured.of("bare")}
    for run in measured.of("detailed"):
        seconds = [a["wall_seconds"] for a in run["attempts"] if a["state"] == "published" and a["launches"]]
        bare_seconds = bare.get(run["workload"])
        if not (seconds and bare_seconds and run["launches"] and run["files"]):
            continue
        spent = sum(seconds) - len(seconds) * bare_seconds
        costs.setdefault(_set_of(measured, run), []).append(1000 * spent / run["launches"])
    for name, values in sorted(costs.items()):
        claim.lines.append(
            f"{name}: median {median(values):.2f} ms a launch "
            f"({min(values):.2f} to {max(values):.2f}, {len(values)} runs)"
        )
        claim.values[name] = median(values)
    return claim.judge([])


def _set_of(measured: Measured, run: Run) -> str:
    caches = "flushed" if run["condition"]["cache"] == "all" else "warm"
    passes = sorted(set(measured.table(run, ["replay_passes"])["replay_passes"].drop_null().to_pylist()))
    said = "/".join(f"{p:g}" for p in passes) or "?"
    return f"{said} passes, {caches} caches"


def _alignment(measured: Measured) -> Claim:
    claim, faults = Claim("alignment between levels"), []
    for row in _rows(measured, "pks"):
        match = row.get("match") or {}
        if match.get("between") != "levels" or match.get("percent") is None:
            faults.append(f"{row['workload']} is {row['status']}: {row['reason'][:200]}")
            continue
        claim.lines.append(f"{row['workload']}: {match['percent']:.2f} % ({match['kind']})")
        claim.values[row["workload"]] = match["percent"]
        faults += measured.flawed(row)
        if match["percent"] < _LEAST_MATCH_PERCENT:
            faults.append(f"{row['workload']} aligns at {match['percent']:.2f} %")
    return claim.judge(faults)


def _effective_sms(measured: Measured) -> Claim:
    claim, faults = Claim("effective SMs at 50 %"), []
    for entry in _shares(measured):
        effective, everything = entry.get("effective_sms"), entry.get("all_sms")
        if not effective or not everything:
            faults.append(f"{entry['workload']}: no probe's answer is stored")
            continue
        claim.lines.append(f"{entry['workload']}: {effective} of {everything} SMs")
        claim.values[entry["workload"]] = {"effective": effective, "all": everything}
        faults += measured.flawed(entry)
        if abs(effective - everything / 2) > _SMS_PER_TPC:
            faults.append(f"{entry['workload']}: {effective} of {everything} SMs is not half")
    return claim.judge(faults)


def _share_speedup(measured: Measured) -> Claim:
    claim, faults = Claim("speedup of 100 % over 50 % of the SMs"), []
    for entry in _shares(measured):
        speedup = entry.get("speedup_true")
        if entry["status"] != "ok" or speedup is None:
            faults.append(f"{entry['workload']} is {entry['status']}: {entry['reason'][:200]}")
            continue
        claim.lines.append(f"{entry['workload']}: {speedup:.3f}")
        claim.values[entry["workload"]] = speedup
        faults += measured.flawed(entry)
        if not _LEAST_SPEEDUP <= speedup <= _MOST_SPEEDUP:
            faults.append(f"{entry['workload']}: half of the SMs cannot make it {speedup:.3f} times as slow")
    return claim.judge(faults)


def _flushed(measured: Measured) -> Claim:
    """Instructions a cycle over all launches of the window, caches left alone and flushed."""
    claim, faults = Claim("flushed against warm IPC"), []
    for entry in measured.report.get("cold_start", ()):
        if entry["status"] != "ok":
            faults.append(f"{entry['workload']} is {entry['status']}: {entry['reason'][:200]}")
            continue
        by_run = {run["run_id"]: run for run in measured.runs}
        used = [by_run[run_id] for run_id in entry["runs"] if run_id in by_run]
        warm = [_ipc(measured, run, entry["quantity"]) for run in used if run["condition"]["cache"] == "none"]
        cold = [_ipc(measured, run, entry["quantity"]) for run in used if run["condition"]["cache"] == "all"]
        if warm and cold and not cold[0] <= _MOST_FLUSHED * warm[0]:
            faults.append(
                f"{entry['workload']}: IPC {cold[0]:.3f} with flushed caches, {warm[0]:.3f} with warm"
            )
        ipc = f"IPC {warm[0]:.3f} warm, {cold[0]:.3f} flushed; " if warm and cold else ""
        claim.lines.append(
            f"{entry['workload']}: {ipc}launches differ by {entry['median_difference_percent']:.2f} % "
            f"(median), {entry['weighted_difference_percent']:.2f} % (weighted)"
        )
        claim.values[entry["workload"]] = {"warm_ipc": warm[:1], "flushed_ipc": cold[:1]}
        faults += measured.flawed(entry)
    return claim.judge(faults)


def _ipc(measured: Measured, run: Run, cycles: str) -> float:
    table = measured.table(run, ["instructions", cycles])
    total: float = pc.sum(table[cycles]).as_py() or float("nan")
    return float(pc.sum(table["instructions"]).as_py()) / total


def _two_level(measured: Measured) -> Claim:
    claim, faults = Claim("PKS, two levels"), []
    for row in _rows(measured, "pks"):
        if row["status"] != "ok":
            faults.append(f"{row['workload']} is {row['status']}: {row['reason'][:200]}")
            continue
        window = row.get("window")
        if window is None:
            faults.append(f"{row['workload']} has one level alone: no light run could be used")
            continue
        faults += measured.flawed(row)
        claim.lines.append(
            f"{row['workload']}: {row['launches']:,} launches, {row['groups']} groups, "
            f"error {row['error_percent']:.2f} %, speedup {row['speedup']:.1f} "
            f"(window: error {window['error_percent']:.2f} %)"
        )
        numbers = {name: row[name] for name in ("error_percent", "speedup")}
        claim.values[row["workload"]] = {**numbers, "window_error_percent": window["error_percent"]}
    return claim.judge(faults)


def _noise(measured: Measured) -> Claim:
    """Relative standard deviation of the GPU's time over repeats of one light run."""
    claim = Claim("noise over repeats")
    seconds: dict[str, list[float]] = {}
    for run in measured.of("light", sm_percent=100.0):
        if run["files"] and not measured.under_mps(run):
            total = pc.sum(measured.table(run, ["duration_ns"])["duration_ns"]).as_py() or 0
            seconds.setdefault(run["workload"], []).append(float(total))
    for workload, values in seconds.items():
        if len(values) > 1 and fmean(values):
            percent = 100 * stdev(values) / fmean(values)
            claim.lines.append(f"{workload}: {percent:.2f} % over {len(values)} runs")
            claim.values[workload] = percent
    if not claim.lines:
        claim.why = "no light run was repeated"
    return claim.judge([])


def _rows(measured: Measured, method: str) -> Iterator[Mapping[str, Any]]:
    for row in measured.report.get("rows", ()):
        if row["method"] == method and row["condition"] == _BASELINE:
            yield row


_BASELINE = {"cache": "none", "clock": "none", "sm_percent": 100.0}


def _shares(measured: Measured) -> Iterable[Mapping[str, Any]]:
    entries: Iterable[Mapping[str, Any]] = measured.report.get("sm_share", ())
    return entries


def _named(run: Run) -> str:
    share = run["condition"]["sm_percent"]
    return f"{run['workload']} at {share:g} % repeat {run['repeat']}"
