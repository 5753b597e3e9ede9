"""Parses the three ways in which a trace writes the addresses of a memory instruction.

Source: docs/simulator-files.md, "Instruction lines".
"""

from __future__ import annotations

import numpy as np


def addresses_of(payload: bytes, lanes: int) -> np.ndarray:
    """The address of each active lane, uint64 of shape (lanes,).

    ``payload`` is what follows the width: mode, addresses, and an immediate in newer traces, which is
    ignored. Raises ValueError unless it holds addresses for that many lanes.
    """
    try:
        return _MODES[payload.split(None, 1)[0]](payload, lanes)
    except (KeyError, IndexError, OverflowError) as error:
        raise ValueError(payload) from error


def _listed(payload: bytes, lanes: int) -> np.ndarray:
    """Mode 0: an address for every active lane. Sixteen digits, as the tracer writes, take a fast path."""
    tokens = payload.split(None, lanes + 1)[1 : lanes + 1]
    if len(tokens) != lanes:
        raise ValueError(payload)
    digits = b"".join(tokens).replace(b"0x", b"")
    if len(digits) == 16 * lanes and all(len(token) == 18 for token in tokens):
        return np.frombuffer(bytes.fromhex(digits.decode("ascii")), ">u8").astype(np.uint64)
    return np.array([int(token, 16) for token in tokens], np.uint64)


_STEPS = np.arange(32, dtype=np.int64)


def _strided(payload: bytes, lanes: int) -> np.ndarray:
    """Mode 1: a base and a stride over one run of active lanes."""
    _, base, stride = payload.split(None, 3)[:3]
    # Addresses are unsigned and strides signed: modulo 2^64 that makes no difference.
    return (np.uint64(int(base, 16)) + (_STEPS[:lanes] * int(stride)).astype(np.uint64)).astype(np.uint64)


def _differences(payload: bytes, lanes: int) -> np.ndarray:
    """Mode 2: a base and the difference of each further active lane from the one before."""
    tokens = payload.split(None, lanes + 1)[1 : lanes + 1]
    if len(tokens) != lanes:
        raise ValueError(payload)
    if not lanes:
        return np.zeros(0, np.uint64)
    base = np.uint64(int(tokens[0], 16))
    steps = np.zeros(lanes, np.int64)
    np.cumsum(np.array(tokens[1:], np.int64) if lanes > 1 else steps[1:], out=steps[1:])
    return (base + steps.astype(np.uint64)).astype(np.uint64)


_MODES = {b"0": _listed, b"1": _strided, b"2": _differences}
