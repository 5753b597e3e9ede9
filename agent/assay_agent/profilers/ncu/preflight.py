"""Which metrics this box's Nsight Compute lists for the GPU's chip, asked before anything is measured.

An unknown metric fails the whole run, and one that is unknown on import silently loses its column. So the
tool itself is asked: ``--list-chips``, then ``--query-metrics --chips CHIP --csv``, which needs neither
GPU nor driver. The answer is kept on the agent's disk until the tool's file changes.
Source: docs/nvidia-tools.md, "Metric names".
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from assay_agent.execution.tool_version import ToolVersion
from assay_core.files import durable
from assay_core.files.private_folders import make_private_folder
from assay_core.processes.tool_run import ToolResult
from assay_sampling.counters.definitions import registry

# Chips of a compute capability, the one that gives it its name first. NVIDIA's metric listings of one
# capability agree, so the first chip that the tool lists is enough; 10.3 and 12.1 were not seen on a GPU.
CHIPS: Mapping[str, tuple[str, ...]] = {
    "7.0": ("gv100",),
    "7.2": ("gv11b",),
    "7.5": ("tu102", "tu104", "tu106", "tu116", "tu117"),
    "8.0": ("ga100",),
    "8.6": ("ga102", "ga103", "ga104", "ga106", "ga107"),
    "8.7": ("ga10b",),
    "8.9": ("ad102", "ad103", "ad104", "ad106", "ad107"),
    "9.0": ("gh100",),
    "10.0": ("gb100", "gb102"),
    "10.3": ("gb110", "gb112"),
    "12.0": ("gb202", "gb203", "gb205", "gb206", "gb207"),
    "12.1": ("gb20b",),
}
# Known without counting; no release lists them.
FREE_METRICS = ("launch__", "device__", "profiler__")
_CHIP = re.compile(r"\b[a-z]{2}\d[0-9a-z]{1,3}\b")
_FOLDER = "ncu-metrics"


@dataclass(frozen=True)
class Listing:
    """The base names (without suffix) of the metrics that a tool lists for a chip.

    ``names`` is None if the tool could not be asked; ``why`` then gives the reason, for people. ``refused``
    are metrics (with suffix) that the tool lists but refused to profile.
    """

    chip: str = ""
    names: frozenset[str] | None = None
    why: str = ""
    refused: frozenset[str] = frozenset()

    def without(self, metrics: Collection[str]) -> Listing:
        """The listing with more refused metrics."""
        return replace(self, refused=self.refused | set(metrics))

    def lists(self, metric: str) -> bool:
        """Whether the metric can be asked for, as far as is known."""
        if metric in self.refused:
            return False
        if self.names is None or metric.startswith(FREE_METRICS):
            return True
        return metric.partition(".")[0] in self.names


NOT_ASKED = Listing()
Ask = Callable[[list[str], Path | None], ToolResult]


def listing_of(
    tool: ToolVersion,
    compute_capability: str,
    answering: Mapping[str, str],
    *,
    state: Path,
    scratch: Path,
    ask: Ask,
) -> Listing:
    """The tool's list for a compute capability such as "8.6".

    Args:
        tool: Nsight Compute of this box.
        compute_capability: of the GPU; "" if unknown.
        answering: variables that change the tool's answer.
        state: the agent's folder, where answers are kept.
        scratch: a folder for the listing while it is read.
        ask: runs a command, its standard output into a file if one is given.

    Never raises for a tool that does not answer: the listing then holds the reason.
    """
    candidates = CHIPS.get(compute_capability, ())
    if not candidates:
        return Listing(why=f"no chip is known for compute capability {compute_capability or '?'}")
    path = state / _FOLDER / f"{_key(tool, compute_capability, answering)}.json"
    listing = _read(path)
    if listing is not None:
        return listing
    answer = ask([tool.program, "--list-chips"], None)
    listed = frozenset(_CHIP.findall(answer.stdout)) if answer.exit_code == 0 else frozenset[str]()
    chip = next((chip for chip in candidates if chip in listed), "")
    if not chip:
        return Listing(
            candidates[0], why=f"the tool lists no chip of compute capability {compute_capability}"
        )
    page = scratch / "metrics.csv"
    answer = ask([tool.program, "--query-metrics", "--chips", chip, "--csv"], page)
    names = parse_listing(page, chip) if answer.exit_code == 0 else frozenset[str]()
    if not names:
        return Listing(chip, why=f"the tool did not list the metrics of {chip} ({answer.ending})")
    listing = Listing(chip, names)
    _keep(path, listing)
    return listing


def parse_listing(page: Path, chip: str) -> frozenset[str]:
    """The chip's metric names in the output of ``--query-metrics --csv``; empty for other output."""
    with page.open(encoding="utf-8", errors="replace", newline="") as file:
        rows = csv.reader(file)
        header = next((row for row in rows if row[:1] == ["Metric name"]), [])
        if chip not in header:
            return frozenset()
        column = header.index(chip)
        return frozenset(row[0] for row in rows if len(row) > column and row[column].strip() == "1")


def missing_text(listing: Listing, tool: ToolVersion, missing: Collection[str]) -> str:
    """The detail of the flag for counters that cannot be collected."""
    of = f"chip {listing.chip}" if listing.names is not None else "this GPU"
    text = f"Nsight Compute {tool.version} has no metric of {of} for {', '.join(missing)}"
    refused = refused_metrics(listing, missing)
    return text + (f"; it refused {', '.join(refused)} when it profiled" if refused else "")


def refused_metrics(listing: Listing, counters: Collection[str]) -> list[str]:
    """The metrics of some counters that the tool refused to profile, in alphabetical order."""
    entries = (registry()[name] for name in counters if name in registry())
    return sorted({metric.name for counter in entries for metric in counter.metrics} & listing.refused)


def _key(tool: ToolVersion, compute_capability: str, answering: Mapping[str, str]) -> str:
    state = Path(tool.program).stat()
    of_tool = [tool.program, state.st_mtime_ns, state.st_size, tool.version, sorted(answering.items())]
    text = json.dumps([*of_tool, compute_capability])
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _read(path: Path) -> Listing | None:
    try:
        document = json.loads(path.read_bytes())
        return Listing(str(document["chip"]), frozenset(map(str, document["names"])))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(path: Path, listing: Listing) -> None:
    """Keep an answer; a full disk only means that the tool is asked again."""
    text = json.dumps({"chip": listing.chip, "names": sorted(listing.names or ())})
    with contextlib.suppress(OSError):
        make_private_folder(path.parent)
        durable.write_atomically(path, text.encode())
