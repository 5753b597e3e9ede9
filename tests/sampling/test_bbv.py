"""Files of basic-block vectors and of thread blocks: what is read, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from assay_sampling.errors import InputError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.readers.block_files import read_basic_block_vectors, read_block_size_variation
from tests.support.sampling.made_launches import made_launches

GOOD = "launch,block,count,warps\n0,2,7,8\n0,0,5,8\n1,0,0,4\n2,1,9,2\n"


def three() -> Launches:
    return made_launches(["a", "b", "a"], duration_ns=[1, 2, 3])


def written(folder: Path, text: str) -> Path:
    path = folder / "bbv.csv"
    path.write_text(text)
    return path


def test_a_file_in_any_order(tmp_path: Path) -> None:
    vectors = read_basic_block_vectors(written(tmp_path, GOOD), three())
    assert vectors.offsets.tolist() == [0, 2, 2, 3]  # zeros are not held
    assert vectors.block.tolist() == [0, 2, 1]
    assert vectors.count.tolist() == [5, 7, 9]
    assert vectors.warps.tolist() == [8, 4, 2]


def test_parquet_and_compressed_csv_are_the_same(tmp_path: Path) -> None:
    expected = read_basic_block_vectors(written(tmp_path, GOOD), three())
    table = csv.read_csv(tmp_path / "bbv.csv")
    parquet.write_table(table.append_column("comment", pa.array(["x"] * 4)), tmp_path / "a")
    (tmp_path / "b.gz").write_bytes(gzip.compress(GOOD.encode()))
    for name in ("a", "b.gz"):
        found = read_basic_block_vectors(tmp_path / name, three())
        assert all(
            np.array_equal(a, b) for a, b in zip(vars(found).values(), vars(expected).values(), strict=True)
        )


def test_processes(tmp_path: Path) -> None:
    launches = made_launches(["a"] * 3, process=np.array([0, 3, 3]), launch=np.array([5, 0, 1 << 39]))
    path = written(tmp_path, f"process,launch,block,count,warps\n3,0,0,1,1\n3,{1 << 39},0,3,3\n0,5,0,2,2\n")
    assert read_basic_block_vectors(path, launches).count.tolist() == [2, 1, 3]
    path = written(tmp_path, "process,launch,block,count,warps\n1,5,0,1,1\n")
    with pytest.raises(
        InputError, match="row 1 is of launch 5 of process 1, which the profile does not have"
    ):
        read_basic_block_vectors(path, launches)
    with pytest.raises(InputError, match="launch 0 of process 0"):
        read_basic_block_vectors(written(tmp_path, GOOD), launches)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            GOOD.replace("2,1,9,2\n", ""),
            r"lacks 1 of the 3 launches of the profile, first launch 2 of process 0",
        ),
        (GOOD + "3,0,1,1\n", "row 5 is of launch 3 of process 0, which the profile does not have"),
        (GOOD + "0,2,7,8\n", "block 2 of launch 0 of process 0 appears twice"),
        (GOOD.replace("0,0,5,8", "0,0,5,9"), "field 'warps': launch 0 of process 0 has two numbers of warps"),
        (GOOD.replace("7", "-7"), "field 'count': -7 in row 1 is not a whole number"),
        (GOOD.replace("7", "7.5"), "7.5 in row 1"),
        (GOOD.replace("7", "nan"), "nothing in row 1"),
        (GOOD.replace("7", ""), "nothing in row 1"),
        (GOOD.replace("0,5,8", "0,nan,8").replace("7", "7.5"), "7.5 in row 1"),
        (GOOD.replace("7", "1e16"), "in row 1 is not a whole number in 0..2"),
        (GOOD.replace("7", "seven"), "field 'count': the column holds string, not numbers"),
        (GOOD.replace("count", "counts"), "no column 'count', only launch, block, counts, warps"),
        (GOOD.replace("warps", "count"), "no column 'count'"),
        ("launch,block,count,warps\n", "it has no rows"),
        ("launch,block\n1,2,3,4,5\n", "neither CSV nor Parquet"),
        ("PAR1 and no more", "neither CSV nor Parquet"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, shown: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=shown) as caught:
        read_basic_block_vectors(path, three())
    assert caught.value.path == str(path)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_basic_block_vectors(tmp_path / "absent", three())
    with pytest.raises(InputError, match="it is empty"):
        read_basic_block_vectors(written(tmp_path, ""), three())
    (tmp_path / "c.gz").write_bytes(gzip.compress(GOOD.encode())[:-20])
    with pytest.raises(InputError, match="cut off"):
        read_basic_block_vectors(tmp_path / "c.gz", three())


def test_variation_of_thread_blocks(tmp_path: Path) -> None:
    path = written(tmp_path, "launch,block,thread_instructions\n0,0,160\n0,1,40\n1,0,9\n2,0,0\n2,1,0\n")
    assert read_block_size_variation(path, three()) == pytest.approx([0.6, 0, 0])
