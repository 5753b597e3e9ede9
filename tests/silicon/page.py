"""The sections of docs/silicon.md."""

from __future__ import annotations

from collections.abc import Sequence

from tests.fidelity.section import Section
from tests.silicon.recordings import NEUSIGHT, TRACES, Goal, Pair
from tests.silicon.scores import DRAWS, Bench, Score, Scored, launches_refused

HEAD = """# Public silicon

Written by `make bench-silicon SILICON_ARGS='--output docs/silicon.md'` from published recordings of real
GPUs: PyTorch traces of TraceLens (AMD, MIT), operator latencies of NeuSight (MIT), a tuning
space of KTT's benchmark hub (MIT), serving latencies of aiconfigurator (NVIDIA, Apache-2.0). **No agent of
ours has met a GPU**: these numbers say how selections hold across GPUs, not how well Assay measures.

Selections are scored on another GPU with unchanged weights, against its whole time. Group errors of all
methods are by operator and exact input shapes (by launch: kernel, grid, block, operator, shapes). A section
lists the bounds that it missed.
"""

_COLUMNS = (
    "workload", "selected on", "scored on", "method", "weights", "chosen", "speedup", "total error %",
    "group error %", "interval held %", "withheld %", "goal",
)  # fmt: skip


def scores_section(found: Sequence[Scored], benches: Sequence[Bench]) -> Section:
    """The scores of all cases, and which goals are missed."""
    rows = [row for scored in found for row in _rows(scored)]
    missed = [text for bench in benches for text in _missed(bench.pair, found)]
    matched = min(percent for bench in benches for percent in bench.matched_time_percent)
    about = (
        f"Root mean squares over {DRAWS} draws, speedup in time where the selection was made; at least "
        f"{matched:.1f} % of either side's time matches, and serving repeats equal latencies, so it is a "
        "smoke test. Goals, kept if a method keeps them with the weights that it uses on other GPUs: "
        "Falconsai at 3x or more of at least 100 operations and timesformer at 5x or more of at least 300: "
        "total error at most 3 %, group error at most 6 %; NeuSight at 30x: total error at most 3 %."
    )
    return Section("One selection, two GPUs", about, _COLUMNS, rows, missed)


def _rows(scored: Scored) -> list[tuple[str, ...]]:
    pair = scored.pair
    first = (pair.workload, pair.here, pair.there, scored.case.title)
    if scored.refused:
        return [(*first, "", "", "", scored.refused.replace("|", "/"), "", "", "", "")]
    return [
        (
            *first,
            score.weights.replace("_", " "),
            f"{score.chosen:,.0f}",
            f"{score.speedup:,.1f}",
            f"{score.total_percent:.2f}",
            f"{score.group_percent:.2f}",
            "-" if score.held_percent is None else f"{score.held_percent:.0f}",
            f"{score.withheld_percent:.0f}",
            _verdict(pair.goal, score),
        )
        for score in scored.scores
    ]


def keeps(goal: Goal, score: Score) -> bool:
    """Whether a score keeps a goal."""
    return (
        score.units >= goal.operations
        and score.speedup >= goal.speedup
        and score.total_percent <= goal.total_percent
        and (goal.group_percent is None or score.group_percent <= goal.group_percent)
    )


def _verdict(goal: Goal | None, score: Score) -> str:
    if goal is None:
        return "-"
    return "kept" if keeps(goal, score) else "missed"


def _missed(pair: Pair, found: Sequence[Scored]) -> list[str]:
    if pair.goal is None:
        return []
    scores = [
        score
        for scored in found
        if (scored.pair.workload, scored.pair.here) == (pair.workload, pair.here)
        for score in scored.scores
        if score.weights == "light_time"
    ]
    if any(keeps(pair.goal, score) for score in scores):
        return []
    return [f"{pair.workload}, {pair.here} to {pair.there}: no method keeps the goal by light time"]


def largest_section(found: Sequence[Scored]) -> Section:
    """The largest speedups that keep each goal."""
    rows = []
    for pair in dict.fromkeys((one.pair.workload, one.pair.here, one.pair.there) for one in found):
        kept = [
            (score.speedup, scored.case.title, score)
            for scored in found
            if (scored.pair.workload, scored.pair.here, scored.pair.there) == pair and scored.pair.goal
            for score in scored.scores
            if score.weights == "light_time" and keeps(scored.pair.goal, score)
        ]
        if kept:
            speedup, title, score = max(kept, key=lambda one: one[0])
            errors = f"{score.total_percent:.2f} / {score.group_percent:.2f}"
            rows.append((*pair, title, f"{speedup:,.1f}", errors))
    columns = ("workload", "selected on", "scored on", "method", "speedup", "total / group error %")
    return Section("The largest speedups that keep the goals", "Weights by light time.", columns, rows)


def by_launch_section() -> Section:
    """Why launches are the wrong unit for library code."""
    rows = [
        (pair.workload, pair.here, pair.there,
         launches_refused(pair.recording(pair.here), pair.recording(pair.there)))
        for pair in (*TRACES, NEUSIGHT)
    ]  # fmt: skip
    about = "By launch each of these pairs is refused: libraries launch other kernels on another GPU."
    return Section("By launch", about, ("workload", "selected on", "scored on", "what differs"), rows)


def claims_section() -> Section:
    """What papers print, beside which the numbers above stand."""
    rows = [
        ("PKA", "MICRO'21, abstract", "MLPerf, simulated", "27 (cycles, silicon)", "centuries to hours"),
        ("PKA", "MICRO'21, 5.2.1", "MLPerf on a V100", "10.0 mean", "1,987 geometric mean"),
        ("PKA", "MICRO'21, 5.2.2", "DeepBench convolution training, selected on Volta, scored on Turing",
         "51.3", "5"),
        ("PKA", "MICRO'21, 5.2.2", "the same, scored on Ampere", "0.5", "3.6"),
        ("Sieve", "ISPASS'23, abstract", "Cactus and MLPerf on an RTX 3080", "1.2 mean, 3.2 at most",
         "about 1,000"),
        ("Sieve", "ISPASS'23, Figure 9", "speedup of an RTX 3080 over a 2080 Ti", "1.5 mean, 3.5 at most",
         "-"),
        ("PKS, as Sieve measured it", "ISPASS'23, abstract", "Cactus and MLPerf on an RTX 3080",
         "16.5 mean, 60.4 at most", "about 1,000"),
        ("STEM+ROOT, as GCL-Sampler measured it", "arXiv 2603.00551, abstract", "its own suite", "0.38 mean",
         "56.6"),
        ("GCL-Sampler", "arXiv 2603.00551, abstract", "its own suite", "0.37 mean", "258.9"),
    ]  # fmt: skip
    about = (
        "Printed by the authors, on other workloads and GPUs than here: to compare kinds of claims, not "
        "numbers. Most are errors on the GPU where the launches were chosen."
    )
    return Section("What papers print", about, ("method", "source", "on", "error %", "speedup"), rows)
