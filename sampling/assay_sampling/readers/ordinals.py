"""Ordinals of processes, launches, and graph nodes, from arrays in or before API order."""

from __future__ import annotations

import numpy as np


def process_ordinals(owner: np.ndarray, call_start: np.ndarray) -> np.ndarray:
    """Ordinals of processes by their first launch, shape (n,)."""
    owners, index = np.unique(owner, return_inverse=True)
    first = np.full(len(owners), np.iinfo(np.int64).max)
    np.minimum.at(first, index, call_start)
    rank = np.empty(len(owners), np.int64)
    rank[np.lexsort((owners, first))] = np.arange(len(owners))
    ordinals: np.ndarray = rank[index]
    return ordinals


def within(process: np.ndarray) -> np.ndarray:
    """Ordinal of each launch within its process; ``process`` is sorted."""
    first = np.searchsorted(process, process, side="left")
    return np.arange(len(process)) - first


def graph_ordinals(process: np.ndarray, group: np.ndarray, node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ordinals of graph launches within their process, and of nodes within their launch, by node ID.

    Node IDs grow with the creation of nodes, so the ordinal of a node is the same in every launch of the
    graph and in every run, whatever order the GPU chose. -1 for launches outside graphs.
    """
    graph_launch = np.full(len(group), -1, np.int64)
    graph_node = np.full(len(group), -1, np.int64)
    rows = np.flatnonzero(node > 0)
    if not len(rows):
        return graph_launch, graph_node
    groups, first, index = np.unique(group[rows], return_index=True, return_inverse=True)
    by_order = np.argsort(first)
    owner = process[rows][first[by_order]]
    ordinal = np.empty(len(groups), np.int64)
    ordinal[by_order] = within(owner)
    graph_launch[rows] = ordinal[index]
    by_node = np.lexsort((node[rows], index))
    sorted_index, sorted_node = index[by_node], node[rows][by_node]
    new_group = np.diff(sorted_index, prepend=-1) != 0
    step = new_group | (np.diff(sorted_node, prepend=-1) != 0)
    running = np.cumsum(step)
    starts = np.maximum.accumulate(np.where(new_group, running, 0))
    graph_node[rows[by_node]] = running - starts
    return graph_launch, graph_node
