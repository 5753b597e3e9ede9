"""Workload files of virtual GPUs: what they declare, and that every fault names its key."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from assay_sampling.errors import InputError
from assay_virtual.architectures import ARCHITECTURES
from assay_virtual.model.gpu import VirtualGPU
from assay_virtual.model.sequence import launch_sequence
from assay_virtual.workloads.loading import LARGEST_FILE_BYTES, load_workload
from assay_virtual.workloads.workload import (
    Autotune,
    Call,
    Kernel,
    Launch,
    Loop,
    Operator,
    Variable,
    Workload,
)

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "virtual-gpu.md"
EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "campaigns" / "virtual").glob("*.toml"))

GOOD = """
workload = "small"
seed = 3

[buffers]
a = "1.5 KiB"
b = 4096

[kernels.add]
name = "void add<float>(float*, float const*)"
block = [32, 4]
instructions = 50
global_loads = 4
reads = { a = 1.0 }
writes = { b = 0.5 }

[[phases]]
repeat = 2
nvtx = "outer"
variables.size = { choices = [1, 2] }

[[phases.steps]]
kernel = "add"
grid = [[1], [2, 3]]
grid_by = "size"

[[phases.steps]]
repeat = 3
nvtx = "inner"
steps = [{ kernel = "add", grid = 5, times = 2 }]
"""


def _written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "workload.toml"
    path.write_text(text)
    return path


def test_a_file_is_read_into_sizes_grids_and_loops(tmp_path: Path) -> None:
    workload = load_workload(_written(tmp_path, GOOD))
    assert workload.buffers == {"a": 1536, "b": 4096}
    assert workload.kernels["add"].block == (32, 4, 1)
    assert workload.phases[0].steps[0].grid == [(1, 1, 1), (2, 3, 1)]  # type: ignore[union-attr]
    assert workload.launches(0, "7.0") == 2 * (1 + 3 * 2)
    assert workload.path == tmp_path / "workload.toml"


FAULTS = [
    ("seed = 3", "sed = 3", "sed", "no such key"),
    ("seed = 3", "seed = -1", "seed", "greater than or equal to 0"),
    ("seed = 3", 'seed = "3"', "seed", "valid integer"),
    ("seed = 3", 'path = "x"', "path", "no such key"),
    ('workload = "small"', "", "workload", "required"),
    ('workload = "small"', 'workload = "../small"', "workload", "pattern"),
    ("seed = 3", "processes = 0", "processes", "greater than or equal to 1"),
    ("seed = 3", "launch_interval_ns = 10", "launch_interval_ns", "4000"),
    ("b = 4096", 'b = "4 kilobytes"', "buffers.b", "24 MiB"),
    ("b = 4096", "b = -1", "buffers.b", "greater than or equal to 0"),
    ("b = 4096", "b = true", "buffers.b", "valid integer"),
    ("instructions = 50", "instructions = 0", "kernels.add.instructions", "greater than 0"),
    ("instructions = 50", "instructions = nan", "kernels.add.instructions", "finite number"),
    ("instructions = 50", "instructions = inf", "kernels.add.instructions", "finite number"),
    ("instructions = 50", "instructions = 3", "kernels.add", "4 memory instructions do not fit into 3"),
    ("instructions = 50", "", "kernels.add.instructions", "required"),
    ("global_loads = 4", "global_lods = 4", "kernels.add.global_lods", "no such key"),
    ("global_loads = 4", "l1_hit_percent = 101", "kernels.add.l1_hit_percent", "less than or equal to 100"),
    ("global_loads = 4", "registers = 300", "kernels.add.registers", "less than or equal to 255"),
    ("block = [32, 4]", "block = [32, 40]", "kernels.add.block", "at most 1024 threads"),
    ("block = [32, 4]", "block = [1, 1, 128]", "kernels.add.block", "64 of them in z"),
    ("block = [32, 4]", "block = [0, 4]", "kernels.add.block[0]", "greater than or equal to 1"),
    ("block = [32, 4]", "block = [1, 1, 1, 1]", "kernels.add.block", "tuple"),
    ("reads = { a = 1.0 }", "reads = { c = 1.0 }", "kernels.add.reads", "there is no buffer 'c'"),
    ("reads = { a = 1.0 }", "reads = { a = 1.5 }", "kernels.add.reads.a", "less than or equal to 1"),
    ("reads = { a = 1.0 }", 'variants."9.9" = {}', 'kernels.add.variants."9.9"', "'9.0'"),
    ("reads = { a = 1.0 }", 'variants."8.0" = {block = 0}', 'kernels.add.variants."8.0".block[0]', "greater"),
    ("reads = { a = 1.0 }", 'variants."8.0" = {blok = 1}', 'kernels.add.variants."8.0".blok', "no such key"),
    (
        "reads = { a = 1.0 }",
        'variants."8.0" = {reads = {z = 1.0}}',
        'kernels.add.variants."8.0".reads',
        "'z'",
    ),
    ("reads = { a = 1.0 }", 'variants."8.0" = {variants = {}}', "kernels.add", "cannot have variants"),
    ('kernel = "add"\ngrid', 'kernel = "sub"\ngrid', "phases[0].steps[0].kernel", "there is no kernel 'sub'"),
    ('kernel = "add"\ngrid', "grid", "phases[0].steps[0].kernel", "required"),
    ("grid = [[1], [2, 3]]", "grid = []", "phases[0].steps[0].grid[0]", "tuple"),
    (
        "grid = [[1], [2, 3]]",
        "grid = [[1], [0]]",
        "phases[0].steps[0].grid[1][0]",
        "greater than or equal to 1",
    ),
    ("grid = [[1], [2, 3]]", "grid = 1.5", "phases[0].steps[0].grid[0]", "tuple"),
    (
        'grid_by = "size"',
        'grid_by = "sise"',
        "phases[0].steps[0].grid_by",
        "no variable of a loop around 'sise'",
    ),
    ('grid_by = "size"', "work_spread = 0.9", "phases[0].steps[0].work_spread", "less than or equal to 0.5"),
    ("choices = [1, 2]", "choices = []", "phases[0].variables.size", "either choices or spread"),
    (
        "choices = [1, 2]",
        "choices = [1], spread = 0.1",
        "phases[0].variables.size",
        "either choices or spread",
    ),
    (
        "choices = [1, 2]",
        "choices = [1, 2], probabilities = [1.0]",
        "phases[0].variables.size",
        "1 probabilities for 2",
    ),
    (
        "choices = [1, 2]",
        "choices = [1, 2], probabilities = [0.5, 0.4]",
        "phases[0].variables.size",
        "0.9, not to 1",
    ),
    ("repeat = 3", "repeat = 0", "phases[0].steps[1].repeat", "greater than or equal to 1"),
    ("repeat = 3", "repeat = 99999999", "phases", "launches; 1 to 20,000,000 are possible"),
    ("repeat = 3", "processes = [1]", None, None),
    ("repeat = 2", "repeat = 2\nprocesses = [1]", "phases", "process 0 makes 0 launches"),
    ("repeat = 2", "repeat = 2\ngraph = true", "phases[0].steps[1]", "are not allowed inside a graph"),
    ("steps = [{", "steps = []\nstep = [{", "phases[0].steps[1].steps", "at least 1 item"),
    (
        "seed = 3",
        'autotune = {kernel = "ad", candidates = ["add"], launches = 1}',
        "autotune",
        "no kernel 'ad'",
    ),
    (
        "seed = 3",
        'autotune = {kernel = "add", candidates = [], launches = 1}',
        "autotune.candidates",
        "at least 1",
    ),
]


OPERATOR = """
[operators.sum]
name = "aten::sum"
input_shapes = "[[{2*size}, 8]]"
steps = [{ kernel = "add", grid = 2, grid_by = "size" }]
variants."8.6" = [{ kernel = "add", grid = 1 }, { kernel = "add", grid = 3 }]
"""
CALLED = (
    GOOD.replace("[[phases]]", OPERATOR + "\n[[phases]]")
    + """
[[phases.steps]]
call = "sum"
"""
)
FAULTS_OF_CALLS = [
    ('call = "sum"', 'call = "sun"', "phases[0].steps[2].call", "there is no operator 'sun'"),
    ('call = "sum"', 'call = "sum"\ntimes = 0', "phases[0].steps[2].times", "greater than or equal to 1"),
    ('call = "sum"', 'call = "sum"\ngrid = 1', "phases[0].steps[2].grid", "no such key"),
    ("{2*size}", "{2*sise}", "phases[0].steps[2].input_shapes", "no variable of a loop around 'sise'"),
    ('grid_by = "size" }]\nv', 'grid_by = "s" }]\nv', "phases[0].steps[2].grid_by", "'s'"),
    ('[{ kernel = "add", grid = 2', '[{ kernel = "ad", grid = 2', "operators.sum.steps[0].kernel", "'ad'"),
    ('[{ kernel = "add", grid = 1 }', '[{ kernel = "ad", grid = 1 }',
     'operators.sum.variants."8.6"[0].kernel', "'ad'"),
    ('variants."8.6"', 'variants."8.7"', 'operators.sum.variants."8.7"', "'9.0'"),
    ('name = "aten::sum"', "", "operators.sum.name", "required"),
    ('variants."8.6" = [{', 'variants."8.6" = []\nvariants."9.0" = [{', 'operators.sum.variants."8.6"',
     "at least 1 item"),
    ('nvtx = "outer"', "graph = true", "phases[0].steps[1]", "not allowed inside a graph"),
    ('repeat = 2\nnvtx = "outer"', "thread = 64", "phases[0].thread", "less than or equal to 63"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "key", "cause"), FAULTS_OF_CALLS, ids=lambda value: str(value)[:40])
def test_a_fault_of_an_operator_names_its_key(
    tmp_path: Path, old: str, new: str, key: str, cause: str
) -> None:
    assert CALLED.count(old) == 1
    with pytest.raises(InputError) as caught:
        load_workload(_written(tmp_path, CALLED.replace(old, new)))
    assert caught.value.field == key
    assert cause in str(caught.value)


def test_an_operator_is_not_called_inside_a_graph(tmp_path: Path) -> None:
    text = CALLED.replace('nvtx = "inner"', "graph = true").replace(
        "grid = 5, times = 2 }", 'grid = 5, times = 2 }, { call = "sum" }'
    )
    with pytest.raises(InputError, match="cannot be called inside a graph") as caught:
        load_workload(_written(tmp_path, text))
    assert caught.value.field == "phases[0].steps[1].steps[1]"


def test_a_call_makes_the_launches_of_its_architecture_and_the_same_calls_on_all(tmp_path: Path) -> None:
    workload = load_workload(_written(tmp_path, CALLED.replace("choices = [1, 2]", "choices = [4]")))
    assert [workload.launches(0, capability) for capability in ("7.0", "8.6")] == [2 * 8, 2 * 9]
    volta, ampere = (launch_sequence(workload, 0, cc, stop=99, autotune=False) for cc in ("7.0", "8.6"))
    assert volta.grid[7].tolist() == [8, 1, 1]
    assert ampere.grid[7:9, 0].tolist() == [1, 3]
    assert [(part.operators.first.tolist(), part.operators.last.tolist()) for part in (volta, ampere)] == [
        ([7, 15], [7, 15]),
        ([7, 16], [8, 17]),
    ]
    for part in (volta, ampere):
        assert part.operators.texts == ("aten::sum", "[[8, 8]]")
        assert part.operators.ordinal.tolist() == [0, 1]


def test_calls_do_not_change_what_the_variables_of_other_loops_draw(tmp_path: Path) -> None:
    drawn = "\n[[phases]]\nrepeat = 50\nvariables.b = { choices = [1, 5, 9] }\n" + (
        'steps = [{ kernel = "add", grid = 1, grid_by = "b" }]\n'
    )
    launch = 'kernel = "add"\ngrid = 2\ngrid_by = "size"'
    grids = [
        launch_sequence(
            load_workload(_written(tmp_path, text + drawn)), 0, "7.0", stop=99, autotune=False
        ).grid
        for text in (CALLED, CALLED.replace('call = "sum"', launch))
    ]
    assert grids[0].tolist() == grids[1].tolist()


def test_launches_of_a_thread_are_not_in_the_ranges_of_another(tmp_path: Path) -> None:
    text = CALLED.replace('nvtx = "inner"', 'nvtx = "inner"\nthread = 1').replace(
        "grid = 5,", 'operator = "aten::add", input_shapes = "[[{size}]]", grid = 5,'
    )
    sequence = launch_sequence(load_workload(_written(tmp_path, text)), 0, "7.0", stop=8, autotune=False)
    assert sequence.thread.tolist() == [0, 1, 1, 1, 1, 1, 1, 0]
    assert [sequence.texts[i] for i in sequence.nvtx] == ["outer", *["inner"] * 6, "outer"]
    calls = sequence.operators
    assert calls.first.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert calls.thread.tolist() == [1, 1, 1, 1, 1, 1, 0]


@pytest.mark.parametrize(("old", "new", "key", "cause"), FAULTS, ids=lambda value: str(value)[:40])
def test_a_fault_names_its_key(
    tmp_path: Path, old: str, new: str, key: str | None, cause: str | None
) -> None:
    assert old in GOOD
    path = _written(tmp_path, GOOD.replace(old, new, 1))
    if key is None or cause is None:
        load_workload(path)
        return
    with pytest.raises(InputError) as caught:
        load_workload(path)
    assert caught.value.field == key
    assert cause in str(caught.value)
    assert str(path) in str(caught.value)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("content", "line", "cause"),
    [
        (b"workload = 'small'\nseed = = 3\n", 2, "not TOML"),
        (b"workload = 'small'\nworkload = 'again'\n", 2, "not TOML"),
        (b"\xff\xfe", None, "not UTF-8"),
        (b"", None, "required"),
        (b"#" * (LARGEST_FILE_BYTES + 1), None, "longer than 1,048,576 bytes"),
        (b"a = " + b"[" * 100_000, None, "nested too deeply"),
    ],
)
def test_a_file_that_is_no_workload_is_refused(
    tmp_path: Path, content: bytes, line: int | None, cause: str
) -> None:
    path = tmp_path / "workload.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=cause) as caught:
        load_workload(path)
    assert caught.value.line == line


def test_a_file_that_is_not_there_and_a_directory_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.toml", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            load_workload(path)


def test_loops_deeper_than_eight_are_refused(tmp_path: Path) -> None:
    body = '{ kernel = "add", grid = 1 }'
    for _ in range(8):
        body = f"{{ steps = [{body}] }}"
    with pytest.raises(InputError, match="more than 8 deep"):
        load_workload(_written(tmp_path, GOOD + f"\n[[phases]]\nsteps = [{body}]\n"))


def test_a_kernel_may_be_named_like_a_branch(tmp_path: Path) -> None:
    text = GOOD.replace("kernels.add", "kernels.loop").replace('"add"', '"loop"')
    load_workload(_written(tmp_path, text))
    with pytest.raises(InputError) as caught:
        load_workload(_written(tmp_path, text.replace("instructions = 50", "instructions = 0")))
    assert caught.value.field == "kernels.loop.instructions"


def test_loops_unroll_in_order_with_tables_and_variables_of_their_iterations(tmp_path: Path) -> None:
    text = GOOD.replace("choices = [1, 2]", "choices = [4]")
    workload = load_workload(_written(tmp_path, text))
    sequence = launch_sequence(workload, 0, "7.0", stop=100, autotune=False)
    first, second, inner = [4, 1, 1], [8, 3, 1], [5, 1, 1]
    assert sequence.grid.tolist() == [first, *[inner] * 6, second, *[inner] * 6]
    assert [sequence.texts[i] for i in sequence.nvtx] == (["outer"] + ["outer/inner"] * 6) * 2
    spans = {span.text: (span.first.tolist(), span.last.tolist()) for span in sequence.spans}
    assert spans == {
        "outer": ([0, 7], [6, 13]),
        "inner": ([1, 3, 5, 8, 10, 12], [2, 4, 6, 9, 11, 13]),
    }


def test_a_variable_is_drawn_for_each_iteration_and_held(tmp_path: Path) -> None:
    text = GOOD.replace("repeat = 2", "repeat = 4000").replace(
        "choices = [1, 2]", "choices = [1, 3], probabilities = [0.8, 0.2]"
    )
    drawn = _sizes(load_workload(_written(tmp_path, text)))
    held = _sizes(load_workload(_written(tmp_path, text.replace("[0.8, 0.2]", "[0.8, 0.2], hold = 0.9"))))
    for sizes in (drawn, held):
        assert set(sizes.tolist()) == {1, 3}
        assert 0.1 < (sizes == 3).mean() < 0.3
    # Without hold a new value differs from the last with 2 x 0.8 x 0.2; with hold a tenth as often.
    assert 0.29 < (np.diff(drawn) != 0).mean() < 0.35
    assert 0.02 < (np.diff(held) != 0).mean() < 0.045


def _sizes(workload: object) -> np.ndarray:
    sequence = launch_sequence(workload, 0, "7.0", stop=10**6, autotune=False)  # type: ignore[arg-type]
    firsts = sequence.grid[::7, 0]
    return firsts // np.where(np.arange(len(firsts)) % 2 == 0, 1, 2)


def test_processes_draw_differently_and_loops_may_be_limited_to_some(tmp_path: Path) -> None:
    text = GOOD.replace("seed = 3", "seed = 3\nprocesses = 2").replace("repeat = 2", "repeat = 50")
    text = text.replace("repeat = 3", "repeat = 3\nprocesses = [1]")
    workload = load_workload(_written(tmp_path, text))
    assert [workload.launches(process, "7.0") for process in (0, 1)] == [50, 350]
    zero, one = (launch_sequence(workload, p, "7.0", stop=999, autotune=False) for p in (0, 1))
    assert (len(zero), len(one)) == (50, 350)
    assert zero.grid[:, 0].tolist() != one.grid[::7, 0].tolist()


def test_an_iteration_of_a_graph_is_one_call(tmp_path: Path) -> None:
    text = GOOD.replace('nvtx = "inner"', "graph = true")
    sequence = launch_sequence(load_workload(_written(tmp_path, text)), 0, "7.0", stop=9, autotune=False)
    assert sequence.call.tolist() == [0, 1, 1, 2, 2, 3, 3, 4, 5]
    assert sequence.graph_launch.tolist() == [-1, 0, 0, 1, 1, 2, 2, -1, 3]
    assert sequence.graph_node.tolist() == [-1, 0, 1, 0, 1, 0, 1, -1, 0]


def test_copies_are_built_as_the_architecture_can(tmp_path: Path) -> None:
    text = GOOD.replace("global_loads = 4", 'global_loads = 4\nasync_copies = 2\ntensor_copies = 1\n'
                        'tensor_copy_bytes = "2 KiB"')  # fmt: skip
    add = load_workload(_written(tmp_path, text)).kernels["add"]
    hopper, ampere, volta = (add.on(capability) for capability in ("9.0", "8.6", "7.0"))
    assert (hopper.tensor_copies, hopper.async_copies, hopper.instructions) == (1.0, 2.0, 50.0)
    # 2 KiB of one bulk copy are four copies of 512 bytes.
    assert (ampere.tensor_copies, ampere.async_copies, ampere.instructions) == (0.0, 6.0, 53.0)
    # Six copies become six loads of 16 sectors and six stores to shared memory.
    assert (volta.async_copies, volta.global_loads, volta.shared_stores) == (0.0, 10.0, 6.0)
    assert volta.instructions == 59.0
    assert volta.sectors_per_load == pytest.approx((4 * 4 + 6 * 16) / 10)


def test_a_variant_replaces_name_and_grid_on_its_architecture_alone(tmp_path: Path) -> None:
    text = GOOD.replace(
        "reads = { a = 1.0 }", 'variants."8.0" = { name = "ampere_add", block = 256, grid_factor = 0.5 }'
    )
    workload = load_workload(_written(tmp_path, text))
    volta, ampere = (VirtualGPU(kind).execute(workload, level="light")[0] for kind in ("V100", "A100"))
    assert [k.name for k in volta.kernels] == ["void add<float>(float*, float const*)"]
    assert [(k.name, k.block) for k in ampere.kernels] == [("ampere_add", (256, 1, 1))]
    assert (volta.grid[1, 0], ampere.grid[1, 0]) == (5, 2)


def test_the_document_names_every_key_and_its_example_loads(tmp_path: Path) -> None:
    text = DOCUMENT.read_text()
    for model in (Workload, Kernel, Loop, Launch, Operator, Call, Variable, Autotune):
        for key in {field.name for field in fields(model)} - {"path"}:
            assert re.search(rf"[`\n.\[]{key}[`\].= ]", text), f"{model.__name__}.{key}"
    blocks = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    [example] = [block for block in blocks if block.startswith("workload")]
    assert load_workload(_written(tmp_path, example)).launches(0, "7.0") == 400


def test_there_are_at_least_six_examples() -> None:
    assert {path.stem for path in EXAMPLES} >= {
        "training", "inference", "traversal", "stencil", "pipeline", "solver", "decoder", "finetuning",
        "generation",
    }  # fmt: skip


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_on_every_architecture(path: Path) -> None:
    workload = load_workload(path)
    assert workload.workload == path.stem
    for kind in ARCHITECTURES:
        for launched in VirtualGPU(kind).execute(workload, level="detailed", count=300):
            assert len(launched) == 300
            assert 1000 <= launched.total_launches <= 20_000
            for name, values in launched.counters.items():
                assert np.isfinite(values).all(), name
                assert (values >= 0).all(), name
            for name in ("l1_hit_percent", "l2_hit_percent", "occupancy_percent", "dram_throughput_percent"):
                assert launched.counters[name].max() <= 100.0, name
