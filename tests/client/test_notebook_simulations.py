"""``Selection.simulate`` and ``Simulation``: what ``assay simulate`` says, in a notebook."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import assay as notebook
from assay_sampling.errors import InputError
from tests.support.client.simulate_bench import Bench, made_bench
from tests.support.server.made_figures import data_rows

Assay = Callable[..., Any]
DESIGNS = {"big": "BIG", "small": "SMALL"}


@pytest.fixture
def bench(tmp_path: Path, assay: Assay) -> Bench:
    """With two launches drawn of each of three strata, or more."""
    return made_bench(tmp_path, assay, "stratified", "launches_per_group=2")


def test_a_selection_is_simulated_as_by_the_verb(bench: Bench, assay: Assay, tmp_path: Path) -> None:
    selection = notebook.Selection.read(bench.selection)
    simulation = selection.simulate(bench.traces, bench.simulator, DESIGNS, output=bench.output, jobs=2)
    document, drawn = tmp_path / "designs.json", tmp_path / "designs.svg"
    named = [word for name, design in DESIGNS.items() for word in ("--design", f"{name}={design}")]
    ended = assay(*bench.command(*named, "--document", document, "--plot", drawn, "--json"))
    assert ended.code == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert all(each["resumed"] for each in said["launches"])
    assert simulation.designs == ("big", "small")
    assert simulation.to_dict()["designs"] == said["designs"]
    (entry,) = said["speedups"]
    assert simulation.speedup("small") == entry["speedup"]
    assert simulation.interval("small") == (entry["interval"]["low"], entry["interval"]["high"])
    assert simulation.speedup("big") is None and simulation.interval("big") is None
    rows = simulation.to_arrow().to_pylist()
    assert [(row["design"], row["cycles"], row["speedup"]) for row in rows] == [
        ("big", simulation.cycles("big"), None),
        ("small", simulation.cycles("small"), entry["speedup"]),
    ]
    assert simulation.launches().num_rows == 2 * len(bench.weights)
    again = notebook.Simulation.read(document)
    assert again.to_arrow() == simulation.to_arrow()
    assert "small" in again._repr_html_() and "Simulation(designs: big, small" in repr(again)
    (drawn_row,) = data_rows(json.loads(json.dumps(again.plot()._figure.spec)))
    assert (drawn_row["low"], drawn_row["speedup"], drawn_row["high"]) == (
        entry["interval"]["low"], entry["speedup"], entry["interval"]["high"],
    )  # fmt: skip
    assert "small over big" in drawn.read_text()


def test_where_one_launch_stands_for_all_the_figure_has_no_interval(tmp_path: Path, assay: Assay) -> None:
    bench = made_bench(tmp_path, assay, "random", "launches=1")
    selection = notebook.Selection.read(bench.selection)
    simulation = selection.simulate(bench.traces, bench.simulator, DESIGNS, output=bench.output, jobs=2)
    assert simulation.interval("small") is None
    (row,) = data_rows(simulation.plot()._figure.spec)
    assert (row["low"], row["high"]) == (row["speedup"],) * 2
    assert row["vouched"] == "nothing vouches for an interval"
    assert row["hint"].endswith("% of the cycles are not vouched for")


def test_one_design_has_no_speedup_and_the_figure_says_so(bench: Bench) -> None:
    selection = notebook.Selection.read(bench.selection)
    simulation = selection.simulate(bench.traces, bench.simulator, {"big": "BIG"}, output=bench.output)
    assert simulation.plot().empty == "A speedup needs a second design."
    with pytest.raises(KeyError, match="no design 'small'; there are big"):
        simulation.cycles("small")


def test_a_file_that_is_no_simulation_is_refused_with_the_verb_that_writes_one(bench: Bench) -> None:
    with pytest.raises(InputError, match="not what 'assay simulate' wrote") as caught:
        notebook.Simulation.read(bench.selection)
    assert "assay simulate --document FILE" in caught.value.remedy
