"""What of two documents has to be equal, and what may differ.

Numbers, identifiers, keys and exit codes are compared exactly; floats up to the last bits, for
numpy's linear algebra adds up in another order on another CPU. By named rules, which are all here:

* ``VOLATILE``: what differs from run to run and machine to machine, by key;
* ``OPEN``: what may also be there or not;
* ``REPLACED``: texts inside strings that do, by pattern;
* ``PROSE``: sentences for people, by key: that there is one is compared, not its words. A note may be a
  sentence or an object with ``text``: both count as one note;
* ``RENAMED``: keys that have another name now than in the golden files;
* ``RESHAPED``: values that have another form now, and how the golden one becomes it;
* ``ADDED``: keys that the golden files do not have yet.

A key is told by its name alone, or by the end of its path with dots (``error.subject``); list
items are ``[]``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# Seen between two CPUs: at most 1e-14 of the number. A change of a formula is far above it.
ROUNDING = 1e-12

# Key in the golden files -> key now. A whole path's end may stand on the left: "report.old".
RENAMED: dict[str, str] = {}
# Key in the golden files -> what makes its value what it is now.
RESHAPED: dict[str, Callable[[Any], Any]] = {"format_version": lambda _: 2}
# Keys that came since: left out of the comparison where the golden document has no such key beside.
ADDED: frozenset[str] = frozenset(
    {
        "representatives.[].draws", "representatives.[].light_time", "drawing", "groups.[].kernels",
        "groups.[].cost_cov", "launches_without_time", "interval", "interval_reason", "origin", "simulated",
        "version", "failed_runs.[].failure",
        "error.differences", "methods.[].error", "summary.[].error", "rows.[].error", "sm_share.[].error",
        "cold_start.[].error",
        "predictions.[].error", "selections.[].error", "noise.[].error", "locked_clock.[].error",
        "overhead.[].error", "sequences.[].error",
        "unseen_percent",
        "properties.priority", "properties.budget_gpu_hours", "properties.requires", "properties.exclusive",
        "properties.after", "properties.gang", "properties.processes", "properties.unit",
        "properties.project", "properties.bundle", "$defs.RequiresSpec", "bundles", "facts.bundle",
        "programs", "facts.program", "facts.compile_cache", "compile_caches",
        "properties.light_limit_s",
        "weight_kinds", "part_error_percent", "judged_on", "worst_error_percent", "worst_part_error_percent",
        "unseen_time_percent", "two_level.notes", "window.slices", "window.weighted_group_error_percent",
        "decomposition", "decomposition.group_spread", "decomposition.unmatched", "started_cold.group_spread",
        "started_cold.unmatched", "widest_groups", "labels.origins", "labels.right", "labels.cells",
        "started_cold",
        "parameters.tolerance_percent", "launches.[].would_stop", "summary.active_error_percent",
        "mean_error_over_all_percent", "mean_active_error_over_all_percent", "largest_error_percent",
        "largest_active_error_percent", "summary.saved_percent", "active_saved_percent",
        # Ranks that are evaluated each alone.
        "rows.[].rank", "rows.[].processes", "properties.ranks",
        # Selections by operation.
        "rows.[].unit", "rows.[].operations", "columns.call", "columns.operation_id",
        "on.[].differences",
        # When each group of a selection ran.
        "lanes",
        # What a report says in one screen.
        "verdicts", "within_target", "put_together",
        # Weights by light time, and which weights are used where.
        "weights", "light_time_weight", "by_weights",
        # Spools of agents in the overview of a server.
        "spools", "shortage",
        # Maintenance windows of slots, and which attempt of a slice counts.
        "maintenance_until", "attempts.[].counts",
        # What the sensors of GPUs said last, and the desktops that shared them.
        "sensors", "desktop_processes",
        # Who submitted a campaign.
        "owner", "owner_name", "project",
        # What people may ask of running campaigns.
        "paused", "runs_paused", "runs_cancelled", "request", "gpu_hours", "eta",
        # Whether to trust a selection or a score, and what to expect on another GPU.
        "verdict", "expected_elsewhere", "extrapolated_percent",
        # What warming caches costs, of simulated launches.
        "replayed_cycles",
        # What an interval on another GPU rests on.
        "interval_assumption", "not_vouched_percent",
        "fair", "star", "no_star", "recommendation", "recommendations",
        # The instructions of a launch that a run was ended within, from its trace.
        "launches.[].total_instructions",
        # Ids of traces whose tracer missed launches.
        "traced_ids",
        # TBPoint may compare launches by other counters than the published ones.
        "parameters.features",
    }
)  # fmt: skip

PROSE = frozenset(
    {
        "about", "calibration", "cause", "description", "detail", "deviation_growth_chosen_by",
        "flush_method",
        "found", "help", "in_words", "interval_reason", "library_notes", "log", "meaning", "no_device_reason",
        "no_gpu_reason", "note", "notes", "problem", "reason", "refused", "remedy", "stderr.lines", "text",
        "title", "warnings", "what", "why", "libraries.status",
    }
)  # fmt: skip
VOLATILE = frozenset(
    {
        # Times of the wall clock, and what rests on them.
        "leased_at", "ended_at", "wall_seconds", "busy_seconds", "bare_wall_seconds", "bare_busy_seconds",
        "overhead_percent", "busy_overhead_percent", "overhead.[].flags", "telemetry.seconds",
        "telemetry.samples",
        "telemetry.sm_clock_mhz", "telemetry.memory_clock_mhz", "telemetry.temperature_celsius",
        "telemetry.power_watts", "telemetry.busy_percent", "telemetry.series", "telemetry.thermal_gate",
        "telemetry.event_reason_samples",
        # Random identities and folders, and hashes over them. Launches are compared column by column instead.
        "agent_id", "agent_id_before", "environment.HOME", "environment.TMPDIR", "environment_hash",
        "content_hash",
        # This machine and its software.
        "host", "cpu_count", "memory_bytes", "state_free_bytes", "agent_version", "versions",
        "checks.[].state", "stdout.missing", "tools.ncu", "tools.nsys", "tools.cupti",
    }
)  # fmt: skip
# What a machine may lack today and have tomorrow: whether there is such a text says nothing.
OPEN = frozenset({"checks.[].remedy"})
REPLACED: tuple[tuple[str, str], ...] = (
    # Folders that a verb makes for itself; the socket of this user, whoever that is.
    (r"/tmp/assay-[a-z0-9_]{8}/", "<temporary>/"),
    (r"unix:/tmp/assay-\d+/server\.sock", "<own socket>"),
    # The release, in files that name the program that wrote them.
    (r"assay \d+\.\d+[^\s\"]*", "assay <release>"),
)


def kept(document: Any, work: str, golden: Any = None) -> Any:
    """``document`` as the golden files have it: with its prose; ``work`` is where its commands ran.

    Keys of ``ADDED`` that ``golden``, the file so far, has not are left out: some of them, such as
    ``gpu_hours``, differ from run to run.
    """
    return _like(_without(document, (), work, frozenset()), (), frozenset(_places(golden, ())))


def comparable(document: Any, work: str = "<work>") -> Any:
    """``document`` with all that may differ taken out."""
    return _without(document, (), work, PROSE)


def brought_up(golden: Any) -> Any:
    """A golden document with the keys and shapes of today."""
    return _brought_up(golden, ())


def differences(golden: Any, found: Any, path: str = "") -> list[str]:
    """Where two comparable documents differ, a line each."""
    if isinstance(golden, dict) and isinstance(found, dict):
        lines = []
        for key in [*golden, *(key for key in found if key not in golden)]:
            here = f"{path}.{key}" if path else str(key)
            if key not in found:
                lines.append(f"{here}: missing, was {golden[key]!r}")
            elif key not in golden:
                if not _named(_path(here), ADDED):
                    lines.append(f"{here}: new, {found[key]!r}")
            else:
                lines += differences(golden[key], found[key], here)
        return lines
    if isinstance(golden, list) and isinstance(found, list):
        if len(golden) != len(found):
            return [f"{path}: {len(found)} items, were {len(golden)}"]
        pairs = zip(golden, found, strict=True)
        return [line for index, (a, b) in enumerate(pairs) for line in differences(a, b, f"{path}[{index}]")]
    # True equals 1 and 1 equals 1.0 in Python; here they differ.
    same = type(golden) is type(found) and (golden == found or _last_bits(golden, found))
    return [] if same else [f"{path}: {found!r}, was {golden!r}"]


def _last_bits(golden: Any, found: Any) -> bool:
    both = isinstance(golden, float) and isinstance(found, float)
    return both and math.isclose(golden, found, rel_tol=ROUNDING, abs_tol=ROUNDING)


def _path(words: str) -> tuple[str, ...]:
    """``rows[3].error`` as rules name it."""
    return tuple(re.sub(r"\[\d+\]", ".[]", words).split("."))


def _places(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The path of every key in a document."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*path, key)
            yield from _places(item, (*path, key))
    elif isinstance(value, list):
        for item in value:
            yield from _places(item, (*path, "[]"))


def _like(value: Any, path: tuple[str, ...], known: frozenset[tuple[str, ...]]) -> Any:
    """``value`` without the added keys whose paths are not known."""
    if isinstance(value, dict):
        return {
            key: _like(item, here, known)
            for key, item in value.items()
            if (here := (*path, key)) in known or not _named(here, ADDED)
        }
    if isinstance(value, list):
        return [_like(item, (*path, "[]"), known) for item in value]
    return value


def _without(value: Any, path: tuple[str, ...], work: str, prose: frozenset[str]) -> Any:
    if _named(path, OPEN):
        return "<any>"
    if _named(path, VOLATILE):
        return _volatile(value)
    if _named(path, prose) and not _has_keys(value):
        return _prose(value)
    if isinstance(value, dict):
        return {key: _without(item, (*path, key), work, prose) for key, item in value.items()}
    if isinstance(value, list):
        return [_without(item, (*path, "[]"), work, prose) for item in value]
    if isinstance(value, str):
        value = value.replace(work, "<work>")
        for pattern, instead in REPLACED:
            value = re.sub(pattern, instead, value)
    return value


def _volatile(value: Any) -> Any:
    """That there is a number, a text, a list, under which keys."""
    if isinstance(value, dict):
        return {key: _volatile(item) for key, item in value.items()}
    if isinstance(value, list):
        return "<list>"
    if isinstance(value, bool) or value in (None, ""):
        return value
    return "<number>" if isinstance(value, int | float) else value if value[:1] == "<" else "<text>"


def _has_keys(value: Any) -> bool:
    """Whether it is an object of another kind than a note, or a list of them (``properties.title``)."""
    if isinstance(value, list):
        return any(_has_keys(item) for item in value)
    return isinstance(value, dict) and "text" not in value


def _prose(value: Any) -> Any:
    if isinstance(value, list):
        return [_prose(item) for item in value]
    if isinstance(value, str) or (isinstance(value, Mapping) and "text" in value):
        return "<prose>" if value else ""
    return value


def _brought_up(value: Any, path: tuple[str, ...]) -> Any:
    for name, reshape in RESHAPED.items():
        if _ends(path, name):
            return reshape(value)
    if isinstance(value, dict):
        return {_renamed((*path, key)): _brought_up(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_brought_up(item, (*path, "[]")) for item in value]
    return value


def _renamed(path: tuple[str, ...]) -> str:
    for name, now in RENAMED.items():
        if _ends(path, name):
            return now
    return path[-1]


def _named(path: tuple[str, ...], names: frozenset[str]) -> bool:
    return bool(path) and any(_ends(path, name) for name in names)


def _ends(path: tuple[str, ...], name: str) -> bool:
    words = tuple(name.split("."))
    return path[-len(words) :] == words
