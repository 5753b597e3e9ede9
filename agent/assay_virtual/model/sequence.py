"""The launches of one process in API order: the loops of a workload file unrolled into columns.

Nothing here depends on time; only the variants of kernels depend on the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay_virtual.model.operators import CallsAlike, OperatorCalls, in_order
from assay_virtual.model.randomness import key_of, lognormal, uniform
from assay_virtual.workloads.workload import (
    Call,
    Kernel,
    Launch,
    Loop,
    Variable,
    Workload,
    variables_of,
    with_variables,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NvtxSpan:
    """Iterations of one loop: launches ``first`` to ``last`` (ordinals, shape (m,)) under ``text``."""

    text: str
    depth: int
    thread: int
    first: Ints
    last: Ints


@dataclass(frozen=True)
class Sequence:
    """Launches 0 to n - 1 of a process, each array of shape (n,), ``grid`` (n, 3).

    ``kernel`` indexes ``kernels``; ``nvtx``, ``operator`` and ``input_shapes`` index ``texts`` (-1: none).
    ``work`` multiplies the work of a warp. ``call`` is the ordinal of the API call (one for a whole graph);
    before each new call the processor works ``host_ns``, after waiting if ``wait``. ``thread`` makes it.
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
    thread: Ints
    spans: tuple[NvtxSpan, ...]
    operators: OperatorCalls

    def __len__(self) -> int:
        return len(self.kernel)


@dataclass(frozen=True)
class _Unrolled:
    """Leaves in order, and for each loop the iteration that contains each leaf (-1: none)."""

    leaf: Ints
    iteration: dict[int, Ints]
    iterations: dict[int, int]


class _Tree:
    """Loops and launches of a workload, numbered in the order of the file, with the loops around each.

    ``places``: the number of each loop among those of the file, by which variables are drawn; a call of an
    operator is a loop here alone. ``threads``: the thread of each loop.
    """

    def __init__(self, workload: Workload, compute_capability: str) -> None:
        self.loops: list[Loop] = []
        self.places: list[int] = []
        self.threads: list[int] = []
        self.around: list[tuple[int, ...]] = []  # of each loop, outermost first, itself last
        self.leaves: list[tuple[Launch, tuple[int, ...]]] = []
        phases = workload.phases_on(compute_capability)
        self.unrolled = _join([self._loop(phase, ()) for phase in phases])

    def _loop(self, loop: Loop, around: tuple[int, ...]) -> _Unrolled:
        number = len(self.loops)
        inherited = self.threads[around[-1]] if around else 0
        around = (*around, number)
        self.places.append(sum(other.operator is None for other in self.loops))
        self.threads.append(inherited if loop.thread is None else loop.thread)
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

    def _step(self, step: Launch | Call | Loop, around: tuple[int, ...]) -> _Unrolled:
        assert not isinstance(step, Call), "phases_on replaces calls"
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
    tree = _Tree(workload, compute_capability)
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
    draws = _Draws(workload, process, tree, iteration)
    grid, work = _shapes(draws, leaf)
    factor = np.array([k.grid_factor for k in kernels])[kernel]
    grid[:, 0] = np.maximum(1, np.rint(grid[:, 0] * factor))
    return Sequence(
        kernels=kernels,
        kernel=kernel,
        grid=grid,
        work=work,
        operators=_operators(draws, leaf),
        **_context(draws, leaf),
    )


@dataclass(frozen=True)
class _Draws:
    """The values of variables in the iterations of a process's loops."""

    workload: Workload
    process: int
    tree: _Tree
    iteration: dict[int, Ints]

    def values(self, name: str, around: tuple[int, ...], rows: Ints) -> Floats:
        """The value at some launches of the innermost variable of that name, shape of ``rows``."""
        tree = self.tree
        loop = next(n for n in reversed(around) if name in tree.loops[n].variables)
        key = key_of(self.workload.seed, self.process, "variable", tree.places[loop], name)
        drawn = _values(tree.loops[loop].variables[name], key, tree.unrolled.iterations[loop])
        return drawn[self.iteration[loop][rows]]

    def shapes(self, template: str | None, around: tuple[int, ...], rows: Ints) -> list[str]:
        """Input shapes at some launches: as many texts, or none."""
        if not template or not len(rows):
            return []
        names = variables_of(template)
        if not names:
            return [template] * len(rows)
        columns = np.stack([self.values(name, around, rows) for name in names], axis=1)
        distinct, index = np.unique(columns, axis=0, return_inverse=True)
        texts = [with_variables(template, dict(zip(names, row, strict=True))) for row in distinct.tolist()]
        return [texts[i] for i in index.reshape(-1).tolist()]


def _shapes(draws: _Draws, leaf: Ints) -> tuple[Ints, Floats]:
    """Grid, shape (n, 3), and work, shape (n,), with the variables drawn."""
    workload, process, tree = draws.workload, draws.process, draws.tree
    grid, work = np.ones((len(leaf), 3), np.int64), np.ones(len(leaf))
    for number, (launch, around) in enumerate(tree.leaves):
        rows = np.flatnonzero(leaf == number)
        table = np.array(launch.grid)
        grid[rows] = table[draws.iteration[around[-1]][rows] % len(table)]
        if launch.grid_by is not None:
            factor = draws.values(launch.grid_by, around, rows)
            grid[rows, 0] = np.maximum(1, np.rint(grid[rows, 0] * factor))
        work[rows] = launch.work
        if launch.work_by is not None:
            work[rows] *= draws.values(launch.work_by, around, rows)
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


def _operators(draws: _Draws, leaf: Ints) -> OperatorCalls:
    """All calls of operators: of the loops that are such calls, and each launch with an operator of its own.

    A graph's replay calls no operators.
    """
    tree = draws.tree
    parts = []
    for number, loop in enumerate(tree.loops):
        if loop.operator is not None:
            around = tree.around[number]
            begins, ends = _iterations(draws.iteration[number])
            shapes = draws.shapes(loop.operator.input_shapes, around, begins)
            depth, thread = len(around), tree.threads[number]
            parts.append(CallsAlike(loop.operator.name, shapes, begins, ends, depth, thread))
    for number, (launch, around) in enumerate(tree.leaves):
        if launch.operator and not any(tree.loops[n].graph for n in around):
            rows = np.flatnonzero(leaf == number)
            shapes = draws.shapes(launch.input_shapes, around, rows)
            depth, thread = len(around) + 1, tree.threads[around[-1]]
            parts.append(CallsAlike(launch.operator, shapes, rows, rows, depth, thread))
    return in_order(parts)


def _iterations(column: Ints) -> tuple[Ints, Ints]:
    """The first and the last launch of each iteration of a loop, from the iteration of each launch."""
    begins = np.flatnonzero((np.diff(column, prepend=-1) != 0) & (column >= 0))
    ends = np.flatnonzero((np.diff(column, append=-1) != 0) & (column >= 0))
    return begins, ends


def _context(draws: _Draws, leaf: Ints) -> dict[str, Any]:
    """The columns of :class:`Sequence` for the origin of a launch."""
    tree, iteration = draws.tree, draws.iteration
    texts: dict[str, int] = {}

    def index(text: str | None) -> int:
        return -1 if not text else texts.setdefault(text, len(texts))

    threads = np.array([tree.threads[around[-1]] for _, around in tree.leaves])
    # Ranges of another thread are not around a launch.
    paths = [
        [tree.loops[n].nvtx or "" for n in around if tree.threads[n] == thread]
        for (_, around), thread in zip(tree.leaves, threads.tolist(), strict=True)
    ]
    nvtx = np.array([index("/".join(filter(None, path))) for path in paths])
    operator = np.array([index(launch.operator) for launch, _ in tree.leaves])
    n = len(leaf)
    input_shapes = np.full(n, -1)
    for number, (launch, around) in enumerate(tree.leaves):
        rows = np.flatnonzero(leaf == number)
        if variables_of(launch.input_shapes):
            written = draws.shapes(launch.input_shapes, around, rows)
            input_shapes[rows] = [index(text) for text in written]
        else:
            input_shapes[rows] = index(launch.input_shapes)
    graph = np.full(n, -1)
    host_ns, wait = np.zeros(n, np.int64), np.zeros(n, np.bool_)
    spans = []
    graphs = 0
    for number, loop in enumerate(tree.loops):
        column = iteration[number]
        begins, ends = _iterations(column)
        host_ns[begins] += loop.host_ns
        wait[begins] |= loop.synchronize
        if loop.graph:
            graph = np.where(column >= 0, column + graphs, graph)
            graphs += tree.unrolled.iterations[number]
        if loop.nvtx and len(begins):
            depth = len(tree.around[number])
            spans.append(NvtxSpan(loop.nvtx, depth, tree.threads[number], begins, ends))
    new_graph = (graph >= 0) & (np.diff(graph, prepend=-1) != 0)
    first = np.maximum.accumulate(np.where(new_graph, np.arange(n), 0))
    return {
        "texts": tuple(texts),
        "stream": np.array([launch.stream for launch, _ in tree.leaves])[leaf],
        "nvtx": nvtx[leaf],
        "operator": operator[leaf],
        "input_shapes": input_shapes,
        "call": np.cumsum((graph < 0) | new_graph) - 1,
        "graph_launch": np.where(graph >= 0, np.cumsum(new_graph) - 1, -1),
        "graph_node": np.where(graph >= 0, np.arange(n) - first, -1),
        "host_ns": host_ns,
        "wait": wait,
        "thread": threads[leaf],
        "spans": tuple(spans),
    }
