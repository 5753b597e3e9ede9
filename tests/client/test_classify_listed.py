"""``assay classify LOG --launches LIST``: a simulated part, and the list of all launches."""

from __future__ import annotations

import csv
import gzip
import re
from pathlib import Path
from typing import Any

import pytest

from assay_sampling.errors import AssayError
from assay_sampling.readers.listed_launches import read_listed_launches
from tests.support.sampling.accel_sim_traces import write_trace

PART = 46


def simulated(data: Path) -> list[dict[str, str]]:
    with (data / "accel_sim_more" / "launches.csv").open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["run"] == "infer.SM7_QV100"]


def write_list(folder: Path, rows: list[dict[str, str]]) -> Path:
    """Headers of the launches' traces, and their list."""
    for row in rows:
        path = folder / f"kernel-{row['launch']}.traceg"
        write_trace(path, grid=f"({row['grid'].replace('x', ',')})", kernel_id=int(row["launch"]))
        text = path.read_text().replace("_Z4kernPf", row["kernel"])
        block = f"block dim = ({row['block'].replace('x', ',')})"
        path.write_text(text.replace("block dim = (64,1,1)", block))
    listed = folder / "kernelslist.g"
    listed.write_text(
        "MemcpyHtoD,0x7f0000000000,64\n" + "".join(f"kernel-{r['launch']}.traceg\n" for r in rows)
    )
    return listed


@pytest.fixture(scope="module")
def part(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of the first launches, as if the simulation had been stopped."""
    path = tmp_path_factory.mktemp("part") / "part.out"
    with gzip.open(shared_data / "accel_sim_more" / "infer.SM7_QV100.out.gz", "rt") as file:
        text = file.read()
    path.write_text(text[: [found.start() for found in re.finditer("Processing kernel", text)][PART]])
    return path


def test_cycles_of_a_whole_trace_from_its_simulated_part(
    shared_data: Path, part: Path, tmp_path: Path, assay: Any
) -> None:
    rows = simulated(shared_data)
    listed, path = write_list(tmp_path, rows), tmp_path / "labels.csv"
    ended = assay("classify", part, "--launches", listed, "-o", path)
    assert ended.code == 0
    for text in ("139 launches", "by scaled_counters", "no error can be given", "beyond sizes"):
        assert text in ended.stdout
    with path.open(newline="") as opened:
        found = list(csv.DictReader(opened))
    assert [row["origin"] for row in found[:PART]] == ["window"] * PART
    costs = [float(row["projected_cycles_simulated_active"] or "nan") for row in found]
    truth = [float(row["active_cycles"]) for row in rows]
    assert costs[:PART] == truth[:PART]
    # The only kernel that the part lacks: three launches without a cost.
    unknown = [row["kernel"] for row, each in zip(rows, found, strict=True) if each["origin"] == "unknown"]
    assert unknown == ["_Z6argmaxPKfPii"] * 3
    known = [index for index, cost in enumerate(costs) if cost == cost]  # noqa: PLR0124 - not NaN
    assert sum(costs[index] for index in known) == pytest.approx(
        sum(truth[index] for index in known), rel=0.05
    )


def test_what_does_not_belong_together_is_refused(
    shared_data: Path, part: Path, tmp_path: Path, assay: Any
) -> None:
    rows = simulated(shared_data)
    listed = write_list(tmp_path, rows[60:])
    ended = assay("classify", part, "--launches", listed)
    assert ended.code != 0
    assert "match" in ended.stderr
    both = assay("classify", part, "--launches", listed, "--light", part)
    assert both.code == 2
    assert "both --light and --launches are given" in both.stderr
    alone = assay("classify", part).stderr
    assert "neither --light nor --launches is given" in alone
    assert "assay select stem" in alone
    whole = write_list(tmp_path, rows)
    refused = assay("classify", part, "--launches", whole, "-p", "model=nearest_light_time")
    assert refused.code == 7
    assert "the model nearest_light_time needs durations" in refused.stderr


def test_a_list_is_read_by_the_headers_of_its_traces(tmp_path: Path) -> None:
    rows = [
        {"launch": "2", "kernel": "b", "grid": "8x2x1", "block": "64x1x1"},
        {"launch": "1", "kernel": "a", "grid": "4x1x1", "block": "32x4x1"},
    ]
    found = read_listed_launches(write_list(tmp_path, rows))
    assert found.column("launch").tolist() == [0, 1]
    assert [found.names[name] for name in found.column("kernel_id").tolist()] == ["a", "b"]
    assert found.column("grid_x").tolist() == [4, 8]
    assert found.column("block_y").tolist() == [4, 1]
    assert found.table["duration_ns"].null_count == 2
    assert (found.metadata.level, found.metadata.origin) == ("light", "simulated")
    (tmp_path / "kernelslist.g").write_text("kernel-1.traceg\nkernel-1.traceg\n")
    with pytest.raises(AssayError, match="lists the kernel id 1 twice"):
        read_listed_launches(tmp_path / "kernelslist.g")
