"""Every number of a campaign file at its ends, alone and in pairs, read and planned as a server does.

The numbers are those of the JSON schema, so a field that is added is walked without a word here: values with
their least and their most, and lists and mappings with as many entries as they may have. What a document
makes is bounded in memory (1 GiB beside what the process had) and in time of the processor (10 s).

    python -m tests.support.server.campaign_numbers alone 500000
    python -m tests.support.server.campaign_numbers pairs 20000 0 2      # the first half of them
"""

from __future__ import annotations

import copy
import itertools
import json
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay_sampling.counters.definitions import FEATURE_SETS
from assay_sampling.errors import CampaignError
from assay_server.campaign_file.faults import campaign_faults
from assay_server.campaign_file.reading import CampaignFile, read_campaign_file
from assay_server.campaign_file.sizes import campaign_size
from assay_server.campaign_file.spec import Campaign, campaign_schema
from assay_server.campaign_file.yaml_source import Document
from assay_server.campaigns.planning.forecast import forecast_campaign
from assay_server.campaigns.planning.plan import plan_campaign
from assay_server.limits import CAMPAIGN_FILE_LIMITS

MEMORY_BYTES = 1 << 30
# Twice what docs/security.md promises: 10,000 workloads take 6 to 9 s, by the machine.
SECONDS = 20.0
ITEM = "[]"
Path_ = tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """A field at one of its ends: a number, or how many entries a list or mapping has."""

    path: Path_
    end: float
    entries: bool = False

    def __str__(self) -> str:
        entries = " entries" if self.entries else ""
        return f"{'.'.join(self.path)}={self.end:g}{entries}"


class UnboundedError(Exception):
    """A number of the schema that has no least or no most."""


def settings() -> tuple[Setting, ...]:
    """Every field of the schema at each of its ends; raises UnboundedError for a number without ends."""
    schema = campaign_schema()
    return tuple(dict.fromkeys(_settings(schema, schema["$defs"], ())))


def _settings(node: dict[str, Any], definitions: dict[str, Any], path: Path_) -> Iterator[Setting]:
    node = definitions[node["$ref"].rpartition("/")[2]] if "$ref" in node else node
    if node.get("type") in ("integer", "number"):
        yield from (Setting(path, end) for end in _ends(node, path))
    for most in {node.get("maxItems"), node.get("maxProperties")} - {None, 1}:
        assert most is not None
        yield Setting(path, most, entries=True)
    for name, inner in node.get("properties", {}).items():
        yield from _settings(inner, definitions, (*path, name))
    if "items" in node:
        yield from _settings(node["items"], definitions, (*path, ITEM))
    for choice in node.get("anyOf", ()):
        yield from _settings(choice, definitions, path)


def _ends(node: dict[str, Any], path: Path_) -> tuple[float, float]:
    step = 1 if node["type"] == "integer" else 1e-6
    least = node["minimum"] if "minimum" in node else node.get("exclusiveMinimum", -step) + step
    most = node["maximum"] if "maximum" in node else node.get("exclusiveMaximum", 0) - step
    if "maximum" not in node and "exclusiveMaximum" not in node:
        raise UnboundedError(".".join(path))
    return least, most


LIVE = {"name": "live", "command": ["./train"]}
RECORDED = {"name": "recorded", "recordings": [{"device": "V100", "light": "/a"}]}
# What the numbers multiply in one: with counters, without, and with slices that a light run chooses.
BASES: dict[str, dict[str, Any]] = {
    "detailed": {"detailed": {}},
    "light": {"detailed": "none"},
    "auto": {"detailed": {"first": "auto"}},
}


def document(base: str, *changes: Setting) -> dict[str, Any]:
    """A campaign of one command and one recording with these settings; the larger of two counts last."""
    made: dict[str, Any] = {
        "campaign": "walk",
        "gpus": ["V100"],
        "bare": True,
        "workloads": [copy.deepcopy(LIVE), copy.deepcopy(RECORDED)],
        **copy.deepcopy(BASES[base]),
    }
    # Entries last, so that there are as many of what the numbers changed.
    for change in sorted(changes, key=lambda each: (each.entries, -len(each.path))):
        _set(made, change)
    return made


def _set(made: dict[str, Any], change: Setting) -> None:
    node: Any = made
    *around, last = change.path
    for name in around:
        if name == ITEM:
            node = node[-1 if "recordings" in change.path else 0]
            continue
        if name not in node or not isinstance(node[name], dict | list):
            node[name] = copy.deepcopy(_FIRST.get(name, {}))
        node = node[name]
    if change.entries:
        key = 0 if last == ITEM else last
        before = node.get(key) if isinstance(node, dict) else node[key]
        node[key] = _entries(last, int(change.end), before)
    elif last == ITEM:
        node[:] = [change.end]
    else:
        node[last] = change.end


_FIRST: dict[str, Any] = {
    "repeat": {"until_interval_percent": 2.0},
    "conditions": [{"sm_percent": 50.0}],
    "ranks": [],
}


def _entries(name: str, most: int, before: Any) -> Any:
    """As many entries as there may be, all different."""
    if name == "workloads":
        return _workloads(most, before[0])
    fixed = {"sets": ["cycles", "features"], "features": list(FEATURE_SETS), "methods": ["systematic"] * most}
    if name in fixed:
        return fixed[name][:most]
    entries: dict[str, Callable[[int], Any]] = {
        "recordings": lambda number: {**before[0], "device": f"d{number}", "detailed": "/b"},
        "conditions": lambda number: {"sm_percent": 99.0 * (number + 1) / most},
        "ranks": int,
        "after": lambda number: f"w{number + 1}",
    }
    made = [entries.get(name, lambda number: f"{name}{number}")(number) for number in range(most)]
    return dict.fromkeys(made, "1") if name == "environment" else made


def _workloads(most: int, first: dict[str, Any]) -> list[dict[str, Any]]:
    """As many as fit within the values that a file may have, each with the keys of the first one."""
    of_each = max(4, len(json.dumps(first).split(",")) + 2)
    most = min(most, CAMPAIGN_FILE_LIMITS.campaign_file_values // of_each - 20)
    others = {key: value for key, value in first.items() if key != "after"}
    return [{**(others if number else first), "name": f"w{number}"} for number in range(most)]


def outcome(made: dict[str, Any], *, as_text: bool, most_rows: int) -> str:
    """Read, plan and forecast a document: "planned", or "refused"; the plan is as large as foreseen.

    A plan of more than ``most_rows`` runs and slices is only foreseen: "foreseen".
    """
    try:
        if as_text:
            file = read_campaign_file(json.dumps(made), "walk.yaml")
        else:
            file = CampaignFile("walk.yaml", _checked(made), Document())
    except (CampaignError, ValueError):
        return "refused"
    campaign, limits = file.campaign, CAMPAIGN_FILE_LIMITS
    assert campaign_size(campaign).runs <= limits.campaign_runs
    assert campaign_size(campaign).slices <= limits.campaign_slices
    assert campaign_size(campaign).command_bytes <= limits.campaign_runs_bytes
    if campaign_size(campaign).runs + campaign_size(campaign).slices > most_rows:
        return "foreseen"
    plan = plan_campaign(campaign, "walk-1", "/base", "walk.yaml")
    assert len(plan.runs) <= campaign_size(campaign).runs
    assert len(plan.slices) <= campaign_size(campaign).slices
    if as_text:
        del plan
        forecast_campaign(file, "/base", {})
    return "planned"


def _checked(made: dict[str, Any]) -> Campaign:
    campaign = Campaign.model_validate(made)
    if any(True for _ in campaign_faults(campaign)):
        raise ValueError
    return campaign


Case = tuple[str, tuple[Setting, ...], dict[str, Any]]


def alone() -> Iterator[Case]:
    """Each setting alone, on every base, and the long orders of :func:`_shapes`."""
    for base in BASES:
        for each in settings():
            yield f"{base}: {each}", (each,), document(base, each)
    for name, made in _shapes():
        yield name, (), made


def in_pairs() -> Iterator[Case]:
    """Each pair of settings of two fields, on the base that takes both."""
    for one, other in itertools.combinations(settings(), 2):
        if (one.path, one.entries) != (other.path, other.entries):
            base = _base_of(one, other)
            yield f"{base}: {one} and {other}", (one, other), document(base, one, other)


def _shapes() -> Iterator[tuple[str, dict[str, Any]]]:
    """As many workloads as fit into a file, in a row, and with ranks: what each says of others counts."""
    row = [{**LIVE, "name": f"w{n}", "after": [f"w{n - 1}"] if n else []} for n in range(8_000)]
    yield "a row of workloads", {**document("light"), "workloads": row}
    ranks = [{**LIVE, "name": f"w{n}", "ranks": "each"} for n in range(9_000)]
    yield "workloads with ranks", {**document("light"), "workloads": ranks}


def _base_of(*changes: Setting) -> str:
    """Slices chosen from a light run where their share is set, no counters where nothing but a gang runs."""
    paths = {change.path for change in changes}
    if ("detailed", "unseen_percent") in paths and ("detailed", "first") not in paths:
        return "auto"
    return "light" if ("workloads", ITEM, "gang") in paths else "detailed"


def _memory(name: str) -> int:
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) << 10


def main(walk: Iterator[Case], most_rows: int, *, as_text: bool) -> None:
    """Walk cases; ends with a traceback whose note names the first that breaks a bound."""
    outcome(document("detailed"), as_text=True, most_rows=most_rows)  # what is loaded once is not the case's
    before = _memory("VmRSS")
    resource.setrlimit(resource.RLIMIT_AS, (_memory("VmSize") + MEMORY_BYTES,) * 2)
    counts: Counter[str] = Counter()
    taken: set[Setting] = set()
    walked: set[Setting] = set()
    for name, changes, made in walk:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            found = outcome(made, as_text=as_text, most_rows=most_rows)
        except BaseException as error:
            error.add_note(f"case: {name}")
            raise
        counts[found] += 1
        walked.update(changes)
        if found != "refused":
            taken.update(changes)
    signal.setitimer(signal.ITIMER_PROF, 0)
    refused = sorted(map(str, walked - taken))
    print(json.dumps({**counts, "peak_bytes": _memory("VmHWM") - before, "always_refused": refused}))


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS:g} s of the processor")


if __name__ == "__main__":
    signal.signal(signal.SIGPROF, _too_long)
    which, rows, *stride = sys.argv[1:]
    if which == "alone":
        main(alone(), int(rows), as_text=True)
    else:
        first, step = map(int, stride)
        main(itertools.islice(in_pairs(), first, None, step), int(rows), as_text=False)
