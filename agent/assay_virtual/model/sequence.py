"""The launches of one process in API order: the loops of a workload file unrolled into columns.

Nothing here depends on time; only the variants of kernels depend on the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay_virtual.model.randomness import key_of, lognormal, uniform
from assay_virtual.workloads.workload import Kernel, Launch, Loop, Variable, Workload

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NvtxSpan:
    """Iterations of one loop: launches ``first`` to ``last`` (ordinals, shape (m,)) under ``text``."""

    text: str
    depth: int
    first: Ints
    last: Ints


@dataclass(frozen=True)
class Sequence:
    """Launches 0 to n - 1 of a process, each array of shape (n,), ``grid`` (n, 3).

    ``kernel`` indexes ``kernels``; ``nvtx``, ``operator`` and ``input_shapes`` index ``texts`` (-1: none).
    ``work`` multiplies the work of a warp. ``call`` is the ordinal of the API call (one for a whole graph);
    before each new call the processor works ``host_ns``, after waiting if ``wait``.
    """

    kernels: tuple[Kernel, ...]
    texts: tuple[str, ...]
    kernel: Ints
    grid: Ints
    work: Floats
    stream: Ints
    nvtx: Ints
    operator: Ints
    input_shapes: Ints
    call: Ints
    graph_launch: Ints
    graph_node: Ints
    host_ns: Ints
    wait: NDArray[np.bool_]
    spans: tuple[NvtxSpan, ...]

    def __len__(self) -> int:
        return len(self.kernel)


@dataclass(frozen=True)
class _Unrolled:
    """Leaves in order, and for each loop the iteration that contains each leaf (-1: none)."""

    leaf: Ints
    iteration: dict[int, Ints]
    iterations: dict[int, int]


class _Tree:
    """Loops and launches of a workload, numbered in the order of the file, with the loops around each."""

    def __init__(self, workload: Workload) -> None:
        self.loops: list[Loop] = []
        self.around: list[tuple[int, ...]] = []  # of each loop, outermost first, itself last
        self.leaves: list[tuple[Launch, tuple[int, ...]]] = []
        self.unrolled = _join([self._loop(phase, ()) for phase in workload.phases])

    def _loop(self, loop: Loop, around: tuple[int, ...]) -> _Unrolled:
        number = len(self.loops)
        around = (*around, number)
        self.loops.append(loop)
        self.around.append(around)
        body = _join([self._step(step, around) for step in loop.steps])
        n = len(body.leaf)
        own = np.repeat(np.arange(loop.repeat), n)
        columns = {}
        for inner, column in body.iteration.items():
            tiled = np.tile(column, loop.repeat)
            columns[inner] = np.where(tiled < 0, -1, tiled + own * body.iterations[inner])
        counts = {inner: count * loop.repeat for inner, count in body.iterations.items()}
        return _Unrolled(
            np.tile(body.leaf, loop.repeat), {**columns, number: own}, {**counts, number: loop.repeat}
        )

    def _step(self, step: Launch | Loop, around: tuple[int, ...]) -> _Unrolled:
        if isinstance(step, Loop):
            return self._loop(step, around)
        self.leaves.append((step, around))
        return _Unrolled(np.full(step.times, len(self.leaves) - 1), {}, {})


def _join(parts: list[_Unrolled]) -> _Unrolled:
    columns: dict[int, list[Ints]] = {loop: [] for part in parts for loop in part.iteration}
    for part in parts:
        absent = np.full(len(part.leaf), -1)
        for loop, column in columns.items():
            column.append(part.iteration.get(loop, absent))
    counts = {loop: count for part in parts for loop, count in part.iterations.items()}
    leaf = np.concatenate([part.leaf for part in parts])
    return _Unrolled(leaf, {loop: np.concatenate(column) for loop, column in columns.items()}, counts)


def _runs(loop: Loop, process: int) -> bool:
    return loop.processes is None or process in loop.processes


def launch_sequence(
    workload: Workload, process: int, compute_capability: str, *, stop: int, autotune: bool
) -> Sequence:
    """The first ``stop`` launches of a process, as built for an architecture.

    ``autotune`` activates the switch of that name in the workload file.
    """
    tree = _Tree(workload)
    allowed = np.array([
        all(_runs(tree.loops[n], process) for n in around) for _, around in tree.leaves
    ])  # fmt: skip
    kept = np.flatnonzero(allowed[tree.unrolled.leaf])[:stop]
    leaf = tree.unrolled.leaf[kept]
    iteration = {loop: column[kept] for loop, column in tree.unrolled.iteration.items()}
    keys = {name: position for position, name in enumerate(workload.kernels)}
    kernels = tuple(kernel.on(compute_capability) for kernel in workload.kernels.values())
    kernel = np.array([keys[launch.kernel] for launch, _ in tree.leaves])[leaf]
    if autotune and workload.autotune is not None and workload.autotune.enabled:
        tuned = np.flatnonzero(kernel == keys[workload.autotune.kernel])[: workload.autotune.launches]
        tried = np.array([keys[name] for name in workload.autotune.candidates])
        kernel[tuned] = tried[np.arange(len(tuned)) % len(tried)]
    grid, work = _shapes(workload, process, tree, leaf, iteration)
    factor = np.array([k.grid_factor for k in kernels])[kernel]
    grid[:, 0] = np.maximum(1, np.rint(grid[:, 0] * factor))
    return Sequence(kernels=kernels, kernel=kernel, grid=grid, work=work, **_context(tree, leaf, iteration))


def _shapes(
    workload: Workload, process: int, tree: _Tree, leaf: Ints, iteration: dict[int, Ints]
) -> tuple[Ints, Floats]:
    """Grid, shape (n, 3), and work, shape (n,), with the variables drawn."""
    grid, work = np.ones((len(leaf), 3), np.int64), np.ones(len(leaf))
    for number, (launch, around) in enumerate(tree.leaves):
        rows = np.flatnonzero(leaf == number)
        table = np.array(launch.grid)
        grid[rows] = table[iteration[around[-1]][rows] % len(table)]

        def drawn(name: str, around: tuple[int, ...] = around, rows: Ints = rows) -> Floats:
            loop = next(n for n in reversed(around) if name in tree.loops[n].variables)
            key = key_of(workload.seed, process, "variable", loop, name)
            return _values(tree.loops[loop].variables[name], key, tree.unrolled.iterations[loop])[
                iteration[loop][rows]
            ]

        if launch.grid_by is not None:
            grid[rows, 0] = np.maximum(1, np.rint(grid[rows, 0] * drawn(launch.grid_by)))
        work[rows] = launch.work
        if launch.work_by is not None:
            work[rows] *= drawn(launch.work_by)
        if launch.work_spread:
            work[rows] *= lognormal(key_of(workload.seed, process, "work"), rows, launch.work_spread)
    return grid, work


def _values(variable: Variable, key: np.uint64, count: int) -> Floats:
    """The values of a variable in each of ``count`` iterations."""
    iterations = np.arange(count)
    if variable.spread:
        return lognormal(key, iterations, variable.spread)
    m = len(variable.choices)
    bounds = np.cumsum(variable.probabilities or [1.0 / m] * m)[:-1]
    chosen = np.searchsorted(bounds, uniform(key, iterations), side="right")
    if variable.hold:
        changes = uniform(key_of(int(key), "hold"), iterations) >= variable.hold
        chosen = chosen[np.maximum.accumulate(np.where(changes, iterations, 0))]
    return np.array(variable.choices)[chosen]


def _context(tree: _Tree, leaf: Ints, iteration: dict[int, Ints]) -> dict[str, Any]:
    """The columns of :class:`Sequence` for the origin of a launch."""
    texts: dict[str, int] = {}

    def index(text: str | None) -> int:
        return -1 if not text else texts.setdefault(text, len(texts))

    paths = [[tree.loops[n].nvtx or "" for n in around] for _, around in tree.leaves]
    nvtx = np.array([index("/".join(filter(None, path))) for path in paths])
    operator = np.array([index(launch.operator) for launch, _ in tree.leaves])
    shapes = np.array([index(launch.input_shapes) for launch, _ in tree.leaves])
    n = len(leaf)
    graph = np.full(n, -1)
    host_ns, wait = np.zeros(n, np.int64), np.zeros(n, np.bool_)
    spans = []
    graphs = 0
    for number, loop in enumerate(tree.loops):
        column = iteration[number]
        begins = np.flatnonzero((np.diff(column, prepend=-1) != 0) & (column >= 0))
        host_ns[begins] += loop.host_ns
        wait[begins] |= loop.synchronize
        if loop.graph:
            graph = np.where(column >= 0, column + graphs, graph)
            graphs += tree.unrolled.iterations[number]
        if loop.nvtx and len(begins):
            ends = np.flatnonzero((np.diff(column, append=-1) != 0) & (column >= 0))
            spans.append(NvtxSpan(loop.nvtx, len(tree.around[number]), begins, ends))
    new_graph = (graph >= 0) & (np.diff(graph, prepend=-1) != 0)
    first = np.maximum.accumulate(np.where(new_graph, np.arange(n), 0))
    return {
        "texts": tuple(texts),
        "stream": np.array([launch.stream for launch, _ in tree.leaves])[leaf],
        "nvtx": nvtx[leaf],
        "operator": operator[leaf],
        "input_shapes": shapes[leaf],
        "call": np.cumsum((graph < 0) | new_graph) - 1,
        "graph_launch": np.where(graph >= 0, np.cumsum(new_graph) - 1, -1),
        "graph_node": np.where(graph >= 0, np.arange(n) - first, -1),
        "host_ns": host_ns,
        "wait": wait,
        "spans": tuple(spans),
    }
