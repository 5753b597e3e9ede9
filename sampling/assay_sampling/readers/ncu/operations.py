"""The operations of launches that Nsight Compute gives the names of their ranges, but no times.

Launches of one thread in a row with the same range texts, from the outermost to the operation's and serial
numbers included, are one call. A launch outside of ranges is an operation of its own, and ends every call of
its process whose range has no serial number. Only ranges say which thread calls: a launch outside of them
counts as called by the thread of the launch before it.

Source: docs/concepts.md, "Operations". Memory: one batch, and the last call of each thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from assay_sampling.notes.registry import Note, make_note
from assay_sampling.operations.identity import Operation
from assay_sampling.operations.kernel_names import base_name
from assay_sampling.readers.base import NameTracker
from assay_sampling.readers.ncu.ranges import Stack, Stacks
from assay_sampling.readers.operation_calls import RangeName, range_name
from assay_sampling.readers.range_names import has_serial_number, operation_of


@dataclass(frozen=True)
class _Chosen:
    """The operation of a stack: its range, the texts that tell its call, and whether they number it."""

    name: RangeName
    call: tuple[str, ...]
    numbered: bool


@dataclass(frozen=True)
class _Last:
    """The last launch of a thread: its call's texts and ordinal, and how many launches of the process before
    it were outside of ranges."""

    call: tuple[str, ...]
    ordinal: int
    outside: int


class OperationCalls:
    """One pass over a file, table by table."""

    def __init__(self) -> None:
        self._threads: dict[tuple[int, str], int] = {}
        self._of_process: dict[int, int] = {}
        self._last: dict[tuple[int, str], _Last] = {}
        self._latest_thread: dict[int, int] = {}
        self._outside: dict[int, int] = {}
        self._unnumbered = self._renamed = 0
        self._first_unnumbered = ""

    def columns(
        self, process: np.ndarray, launch: np.ndarray, kernels: pa.Array, stacks: Stacks, names: NameTracker
    ) -> dict[str, pa.Array | np.ndarray]:
        """The columns ``call`` and ``operation_id`` of some launches, each of shape (n,).

        ``kernels`` holds the kernels' names, shape (n,).
        """
        chosen = [_chosen(stack) for stack in stacks.distinct]
        encoded = kernels.dictionary_encode()
        kernel = encoded.indices.to_numpy(zero_copy_only=False)
        texts = encoded.dictionary.to_pylist()
        self._count(chosen, stacks, kernel, texts)
        call = self._calls(process, launch, stacks, chosen)
        # The range or the kernel of each launch: -1 for the other of the two.
        ranges_or_kernels = [stacks.index, np.where(stacks.index < 0, kernel, -1)]
        source = np.stack([self._thread_ordinals(process, stacks), *ranges_or_kernels], axis=1)
        return {"call": call, "operation_id": self._identities(source, texts, stacks, chosen, names)}

    def notes(self) -> Iterator[Note]:
        """Notes for the user, complete after the last table."""
        if self._renamed:
            yield make_note("kernels_renamed_by_ranges", launches=self._renamed)
        if self._unnumbered:
            yield make_note(
                "operations_without_serial_numbers",
                launches=self._unnumbered,
                operation=self._first_unnumbered,
            )

    def _count(
        self, chosen: Sequence[_Chosen], stacks: Stacks, kernel: np.ndarray, texts: Sequence[str]
    ) -> None:
        inside = np.flatnonzero(stacks.index >= 0)
        if not len(inside):
            return
        index = stacks.index[inside]
        unnumbered = np.array([not one.numbered for one in chosen], bool)[index]
        if unnumbered.any() and not self._unnumbered:
            name = chosen[index[np.argmax(unnumbered)]].name
            self._first_unnumbered = Operation("range", name.name, name.shapes).label()
        self._unnumbered += int(unnumbered.sum())
        pairs, count = np.unique(np.stack([index, kernel[inside]]), axis=1, return_counts=True)
        renamed = [texts[of] == stacks.distinct[stack].names[-1] for stack, of in pairs.T.tolist()]
        self._renamed += int(count[np.array(renamed, bool)].sum())

    def _calls(
        self, process: np.ndarray, launch: np.ndarray, stacks: Stacks, chosen: Sequence[_Chosen]
    ) -> np.ndarray:
        call = launch.copy()
        outside = self._outside_before(process, stacks.index < 0)
        position: dict[tuple[str, ...], int] = {}
        keys = np.array([position.setdefault(one.call, len(position)) for one in chosen] or [0], np.int64)
        numbered = np.array([one.numbered for one in chosen] or [False], bool)
        threads = {stack.thread: number for number, stack in enumerate(stacks.distinct)}
        thread = np.array([threads[stack.thread] for stack in stacks.distinct] or [0], np.int64)
        inside = np.flatnonzero(stacks.index >= 0)
        lanes = np.stack([process[inside], thread[stacks.index[inside]]], axis=1)
        for lane in np.unique(lanes, axis=0):
            rows = inside[(lanes == lane).all(axis=1)]
            index = stacks.index[rows]
            of = (int(lane[0]), stacks.distinct[index[0]].thread)
            apart = (np.diff(outside[rows]) > 0) & ~numbered[index[1:]]
            begins = np.append(True, (np.diff(keys[index]) != 0) | apart)
            last = self._last.get(of)
            first = chosen[index[0]]
            goes_on = last is not None and last.call == first.call
            if last is not None and goes_on and (first.numbered or last.outside == outside[rows[0]]):
                begins[0] = False
            begun = np.maximum.accumulate(np.where(begins, np.arange(len(rows)), -1))
            before = last.ordinal if last is not None else 0
            call[rows] = np.where(begun >= 0, launch[rows[np.maximum(begun, 0)]], before)
            end = rows[-1]
            self._last[of] = _Last(chosen[index[-1]].call, int(call[end]), int(outside[end]))
        return call

    def _outside_before(self, process: np.ndarray, is_outside: np.ndarray) -> np.ndarray:
        """How many launches of its process before each were outside of ranges, shape (n,)."""
        counted = np.zeros(len(process), np.int64)
        for ordinal in np.unique(process).tolist():
            rows = np.flatnonzero(process == ordinal)
            running = np.cumsum(is_outside[rows]) + self._outside.get(ordinal, 0)
            counted[rows] = running
            self._outside[ordinal] = int(running[-1])
        return counted

    def _identities(
        self,
        source: np.ndarray,
        texts: Sequence[str],
        stacks: Stacks,
        chosen: Sequence[_Chosen],
        names: NameTracker,
    ) -> pa.Array:
        distinct, index = np.unique(source, axis=0, return_inverse=True)
        identities = []
        for thread, stack, kernel in distinct.tolist():
            if stack >= 0:
                name = chosen[stack].name
                one = Operation(name.kind.operation, name.name, name.shapes, thread)
            else:
                one = Operation("kernel", base_name(texts[kernel]), "", thread)
            identities.append(one.to_text())
        return names.intern_indices(identities, index.reshape(-1))

    def _thread_ordinals(self, process: np.ndarray, stacks: Stacks) -> np.ndarray:
        """The ordinal of each launch's thread in its process, by first launch, shape (n,)."""
        ordinals = np.zeros(len(process), np.int64)
        for of_process in np.unique(process).tolist():
            rows = np.flatnonzero(process == of_process)
            index = stacks.index[rows]
            used, first = np.unique(index, return_index=True)
            of_stack = np.zeros(len(stacks.distinct), np.int64)
            for stack in used[np.argsort(first)].tolist():
                if stack >= 0:
                    of_stack[stack] = self._thread(of_process, stacks.distinct[stack].thread)
            latest = np.maximum.accumulate(np.where(index >= 0, np.arange(len(index)), -1))
            has_stack = latest >= 0
            ordinals[rows] = self._latest_thread.get(of_process, 0)
            ordinals[rows[has_stack]] = of_stack[index[latest[has_stack]]]
            self._latest_thread[of_process] = int(ordinals[rows[-1]])
        return ordinals

    def _thread(self, process: int, thread: str) -> int:
        if (process, thread) not in self._threads:
            self._threads[process, thread] = self._of_process.get(process, 0)
            self._of_process[process] = self._threads[process, thread] + 1
        return self._threads[process, thread]


def _chosen(stack: Stack) -> _Chosen:
    ranges = [range_name(text) for text in stack.names]
    place = operation_of(ranges)
    return _Chosen(ranges[place], stack.names[: place + 1], has_serial_number(stack.names[place]))
