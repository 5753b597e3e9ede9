"""``import assay``: launches as tables in both directions, with errors that say what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import assay
from assay_sampling.errors import LaunchTableError, ParameterError
from tests.support.client import hand_made
from tests.support.client.python_names import python_names

HOSTILE = "<script>alert('x')</script>{{7*7}}\x1b[31m & =cmd()"


def frame(**columns: Any) -> pd.DataFrame:
    """Three launches of two kernels; ``columns`` replace or add."""
    plain = {"kernel": ["a", "b", "a"], "grid_x": [8, 4, 8], "block_x": [64, 32, 64],
             "duration_ns": [100, 300, 110]}  # fmt: skip
    return pd.DataFrame({**plain, **columns})


def test_names_and_signatures_change_only_on_purpose() -> None:
    kept = Path(__file__).with_name("python_names.txt").read_text().splitlines()
    assert python_names() == kept, "change python_names.txt only as docs/python.md, 'What stays', allows"


def test_the_import_loads_nothing_until_it_is_used() -> None:
    code = (
        "import sys, assay; first = set(sys.modules); assay.Profile; second = set(sys.modules)\n"
        "print([m for m in ('numpy', 'pyarrow', 'grpc', 'pandas') if m in first],"
        " [m for m in ('pandas', 'altair', 'sklearn', 'rich', 'typer', 'assay_server') if m in second])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[] []"


def test_without_pandas_the_error_names_the_extra() -> None:
    code = (
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'pandas': raise ModuleNotFoundError('no pandas', name=name)\n"
        "sys.meta_path.insert(0, Without())\n"
        "import assay, pyarrow as pa\n"
        "t = pa.table({'kernel': ['a'], 'grid_x': [1], 'block_x': [1], 'duration_ns': [1]})\n"
        "p = assay.Profile.from_arrow(t); print(p.select('random').to_arrow().num_rows)\n"
        "try: p.to_pandas()\n"
        "except assay.AssayError as error: print(error)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rows, text = ended.stdout.splitlines()
    assert rows == "1"
    assert "'pandas' is not installed" in text
    assert "[notebook]" in text


def test_a_recording_returns_from_pandas_and_arrow_as_it_was(tmp_path: Path) -> None:
    window = hand_made.write_raw_page(tmp_path / "window.csv", 12)
    light = hand_made.write_kineto(tmp_path / "light.json", 20)
    profile = assay.Profile.read(window, light=light)
    levels = [profile.to_arrow(level) for level in ("detailed", "light")]
    frames = [profile.to_pandas(level) for level in ("detailed", "light")]
    for again in (
        assay.Profile.from_arrow(levels[0], light=levels[1]),
        assay.Profile.from_pandas(frames[0], light=frames[1]),
    ):
        for level, before in zip(("detailed", "light"), levels, strict=True):
            assert again.to_arrow(level).equals(before, check_metadata=True)
        assert again.select("pks").to_dict()["groups"] == profile.select("pks").to_dict()["groups"]
    assert frames[0].attrs["units"]["cycles_gpc_avg"] == "cycle"
    assert str(frames[1].dtypes["start_ns"]) == "Int64"


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=("Cs",)), max_size=8),
            st.integers(1, 2**40),
            st.integers(0, 2**62),
            st.none() | st.floats(0, 1e18),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_any_launches_return_exactly(rows: list[tuple[str, int, int, float | None]]) -> None:
    kernel, grid, start, instructions = zip(*rows, strict=True)
    table = pa.table({"kernel": kernel, "grid_x": grid, "block_x": [1] * len(rows), "start_ns": start,
                      "instructions": pa.array(instructions, pa.float64())})  # fmt: skip
    found = assay.Profile.from_arrow(table, synthetic=True)
    again = assay.Profile.from_pandas(found.to_pandas())
    assert again.to_arrow().equals(found.to_arrow(), check_metadata=True)
    assert again.to_arrow()["kernel"].to_pylist() == list(kernel)
    assert again.to_arrow()["start_ns"].to_pylist() == list(start)
    assert again.to_arrow()["instructions"].to_pylist() == list(instructions)
    assert again.origin == "synthetic"


def test_a_launch_whose_grid_is_not_known_returns_without_one(tmp_path: Path) -> None:
    profile = assay.Profile.from_pandas(frame(grid_x=[8, np.nan, 8], block_x=[64, np.nan, 64]))
    [written] = profile.write(tmp_path / "bare.parquet")
    for each in (assay.Profile.read(written), assay.Profile.from_pandas(profile.to_pandas())):
        assert each.to_arrow()["grid_x"].to_pylist() == [8, None, 8]
        assert each.to_arrow()["block_x"].to_pylist() == [64, None, 64]
    assert profile.select("random", launches=3).to_pandas()["grid_x"].tolist() == [8, 0, 8]


@pytest.mark.parametrize("suffix", [".parquet", ""])
def test_both_levels_are_written_and_read_back(tmp_path: Path, suffix: str) -> None:
    window = hand_made.write_raw_page(tmp_path / "window.csv", 12)
    light = hand_made.write_kineto(tmp_path / "light.json", 20)
    profile = assay.Profile.read(window, light=light)
    written = profile.write(tmp_path / f"kept{suffix}")
    assert [path.name for path in written] == [f"kept.detailed{suffix}", f"kept.light{suffix}"]
    again = assay.Profile.read(written)
    for level in ("whole", "detailed", "light"):
        assert again.to_arrow(level).equals(profile.to_arrow(level), check_metadata=True)
    one = profile.select("pks", seed=3).to_dict()
    assert again.select("pks", seed=3).to_dict()["groups"] == one["groups"]
    assert profile.write(tmp_path / "light", "light") == (tmp_path / "light",)
    assert assay.Profile.read(tmp_path / "light").to_arrow().equals(profile.to_arrow("light"))


def test_a_plain_frame_is_a_light_profile_that_methods_take() -> None:
    profile = assay.Profile.from_pandas(frame(), device="NVIDIA A100")
    assert (profile.launches, profile.kernels, profile.counters) == (3, 2, ())
    assert (profile.devices, profile.origin, profile.sources) == (("NVIDIA A100",), "measured", ("frame",))
    assert profile.to_pandas()["launch"].tolist() == [0, 1, 2]
    total = profile.select("random", launches=3).evaluate(profile).total
    assert total == 510


@pytest.mark.parametrize(
    ("given_frame", "cause", "remedy"),
    [
        (frame().drop(columns="kernel"), "lacks 'kernel'", "assay docs python"),
        (frame().drop(columns=["grid_x", "block_x"]), "lacks 'grid_x', 'block_x'", "assay docs python"),
        (frame().rename(columns={"kernel": "name"}), "'name' and lacks 'kernel'", "drop or rename"),
        (frame(duration_us=[1, 2, 3]), "unknown column 'duration_us'", "multiply it by 1,000"),
        (frame(duration=[1, 2, 3]), "unknown column 'duration'", "'duration_ns'"),
        (frame(instrutions=[1, 2, 3]), "unknown column 'instrutions'", "did you mean 'instructions'"),
        (frame(**{HOSTILE: [1, 2, 3]}), "unknown column", "drop or rename"),
        (frame(grid_x=[8, 4.5, 8]), "'grid_x' does not hold whole numbers", "assay docs python"),
        (frame(grid_x=[8, 0, 8]), "'grid_x' holds 0", "assay docs python"),
        (frame(grid_x=["8", "4", "8"]), "'grid_x' does not hold whole numbers", "convert"),
        (frame(kernel=[1, 2, 3]), "'kernel' holds int64, not text", "convert"),
        (frame(kernel=["a", None, "b"]), "'kernel' has no value in row 1", "every launch"),
        (frame(duration_ns=[1, -2, 3]), "'duration_ns' holds -2", "assay docs python"),
        (frame(duration_ns=[1, 2**70, 3]), "duration_ns", "numbers or text"),
        (frame(launch=[0, 1, 1]), "launch 1 of process 0 appears twice", "once"),
        (frame(instructions=[True, False, True]), "'instructions' does not hold numbers", "convert"),
    ],
)  # fmt: skip
def test_a_wrong_frame_is_refused_with_its_column(given_frame: Any, cause: str, remedy: str) -> None:
    with pytest.raises(LaunchTableError) as caught:
        assay.Profile.from_pandas(given_frame, name="mine")
    assert caught.value.subject == "mine"
    assert cause in caught.value.cause
    assert remedy in caught.value.remedy


def test_a_wrong_unit_is_refused_in_both_forms() -> None:
    given_frame = frame()
    given_frame.attrs["units"] = {"duration_ns": "us"}
    with pytest.raises(LaunchTableError, match=r"'duration_ns' is in 'us'.*takes 'ns'; multiply it by 1,000"):
        assay.Profile.from_pandas(given_frame)
    table = pa.Table.from_pandas(frame(cycles_gpc_avg=[1.0, 2.0, 3.0]))
    at = table.schema.get_field_index("cycles_gpc_avg")
    wrong = table.schema.set(at, table.schema.field(at).with_metadata({"unit": "Kcycle"}))
    with pytest.raises(LaunchTableError, match="'cycles_gpc_avg' is in 'Kcycle'"):
        assay.Profile.from_arrow(table.cast(wrong))


def test_levels_in_the_wrong_place_are_named() -> None:
    counted = frame(instructions=[1.0, 2.0, 3.0])
    with pytest.raises(ParameterError, match="table: it has no counters"):
        assay.Profile.from_pandas(frame(), light=counted)
    with pytest.raises(ParameterError, match="light: it has counters"):
        assay.Profile.from_pandas(counted, light=counted)
    with pytest.raises(ParameterError, match=r"no level 'light'.*'whole', 'detailed'"):
        assay.Profile.from_pandas(counted).to_arrow("light")
    with pytest.raises(TypeError, match="not dict"):
        assay.Profile.from_pandas({"kernel": []})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not DataFrame"):
        assay.Profile.from_arrow(frame())


def test_an_empty_frame_is_a_profile_that_no_method_takes() -> None:
    profile = assay.Profile.from_pandas(frame().iloc[:0])
    assert len(profile) == 0
    with pytest.raises(assay.AssayError, match="holds no launches"):
        profile.select("random")
    assert "0" in profile._repr_html_()


def test_metadata_of_a_newer_release_are_refused() -> None:
    given_frame = frame()
    given_frame.attrs["assay"] = '{"schema_version": 99}'
    with pytest.raises(LaunchTableError, match="schema version 99"):
        assay.Profile.from_pandas(given_frame)


def test_what_was_synthetic_stays_so() -> None:
    made = assay.Profile.from_pandas(frame(), synthetic=True).to_pandas()
    assert assay.Profile.from_pandas(made, synthetic=False).origin == "synthetic"


def test_hostile_names_are_text_in_a_notebook() -> None:
    profile = assay.Profile.from_pandas(frame(kernel=[HOSTILE, "b", "a"]), name=HOSTILE, device=HOSTILE)
    selection = profile.select("random", launches=3)
    comparison = profile.compare("random", "pks")
    evaluation = selection.evaluate(profile)
    for shown in (profile, selection, evaluation, comparison):
        assert "<script" not in shown.plot().svg()
        page = shown._repr_html_()
        assert "<script" not in page
        assert "\x1b" not in page
        assert "&lt;script&gt;alert(&#x27;x&#x27;)" in page
    assert HOSTILE in selection.to_pandas()["kernel"].tolist()
