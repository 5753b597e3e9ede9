"""Kernels for simulated traces, beside those of the shared generator: one function a kernel family.

Synthetic, and written for this project: a function takes the block, the warp and the parameters of a launch,
and returns the warp's lines, as those of the shared generator do. Each family is deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

Parameters = Mapping[str, Any]
Kernel = Callable[[int, int, Parameters], list[str]]


def conv(g: ModuleType, block: int, warp: int, p: Parameters) -> list[str]:
    """A tile with its halo into shared memory, a barrier, nine taps from it, a store; twice."""
    thread, lines = block * p["bd"] + warp * 32, list(g.PRO)
    for strip in range(2):
        at = p["a"] + 4 * (thread * 2 + strip * p["bd"])
        lines += [g.ins(0x70, g.LDG, 6, (2,), g.stride(at))]
        lines += [g.ins(0x80, "STS", None, (8, 6), g.stride(warp * 128))]
        if warp == 0:
            lines += [g.ins(0x90, g.LDG, 7, (2,), g.stride(at - 64), g.lanes(16))]
            lines += [g.ins(0xA0, "STS", None, (8, 7), g.stride(p["bd"] * 4), g.lanes(16))]
        lines.append(g.ins(0xB0, "BAR.SYNC"))
        for tap in range(9):
            lines += [g.ins(0xC0, "LDS.U", 20, (8,), g.stride(warp * 128 + tap * 4))]
            lines += [g.ins(0xD0, "FFMA", 22, (20, 5, 22))]
        target = p["c"] + 4 * (thread * 2 + strip * p["bd"])
        lines += [g.ins(0xE0, "BAR.SYNC"), g.ins(0xF0, g.STG, None, (2, 22), g.stride(target))]
        lines += g.loop_end(0x100)
    return [*lines, g.ins(0x130, "EXIT")]


def probe(g: ModuleType, block: int, warp: int, p: Parameters) -> list[str]:
    """A hash join: a key a lane, then a chain of random nodes, until the longest of the lanes ends."""
    random, nodes = g.rng(p, block, warp), 8 * g.MB // 8
    thread = block * p["bd"] + warp * 32
    lines = [*g.PRO, g.ins(0x70, g.LDG, 6, (2,), g.stride(p["b"] + 4 * thread))]
    lines += [g.ins(0x80, "LOP3.LUT", 8, (6,)), g.ins(0x90, "IMAD.WIDE", 8, (8, 5))]
    lengths = sorted((min(40, int(random.expovariate(1 / 4)) + 1) for _ in range(32)), reverse=True)
    for step in range(lengths[0]):
        active = sum(length > step for length in lengths)
        nodes_at = [p["a"] + 8 * random.randrange(nodes) for _ in range(active)]
        place = g.delta(nodes_at, 8) if active > 1 else (8, 1, f"0x{nodes_at[0]:x} 8")
        mask = g.lanes(active)
        lines += [g.ins(0xA0, g.LDG, 7, (8,), place, mask)]
        lines += [g.ins(0xB0, "ISETP.NE.AND", None, (7,), None, mask)]
        lines += [g.ins(0xC0, "BRA", None, (), None, mask)]
    lines += [g.ins(0xD0, g.STG, None, (2, 7), g.stride(p["c"] + 4 * thread))]
    return [*lines, g.ins(0xE0, "EXIT")]


def scan(g: ModuleType, block: int, warp: int, p: Parameters) -> list[str]:
    """A block's prefix sum: wide loads, shuffles, a value a warp through shared memory, wide stores."""
    thread, lines = block * p["bd"] + warp * 32, list(g.PRO)
    for item in range(3):
        at = p["a"] + 16 * (thread * 3 + item * 32)
        lines += [g.ins(0x70, g.LDG128, 16, (2,), g.stride(at, 16, 16)), *g.fp(0x80, 4, 1)]
    lines += [g.ins(0x100, "SHFL.UP", 20, (16,)), g.ins(0x110, "FADD", 16, (16, 20))] * 5
    lines += [g.ins(0x120, "STS", None, (8, 16), g.stride(warp * 4), 1), g.ins(0x130, "BAR.SYNC")]
    if warp == 0:
        step = [g.ins(0x140, "LDS.U", 20, (8,), g.stride(0), g.lanes(8))]
        step += [g.ins(0x150, "FADD", 21, (21, 20), None, g.lanes(8))]
        total = g.stride(p["c"] + 64 * g.MB + 4 * (block % 64))
        lines += [*step * 3, g.ins(0x160, "RED.E.ADD.F32.FTZ.RN.STRONG.GPU", None, (2, 21), total, 1)]
    lines += [g.ins(0x170, "BAR.SYNC"), g.ins(0x180, "LDS.U", 20, (8,), g.stride(warp * 4, 0))]
    for item in range(3):
        at = p["c"] + 16 * (thread * 3 + item * 32)
        lines += [g.ins(0x190, "FADD", 16, (16, 20))]
        lines += [g.ins(0x1A0, g.STG128, None, (2, 16), g.stride(at, 16, 16))]
    return [*lines, g.ins(0x1B0, "EXIT")]


def nbody(g: ModuleType, block: int, warp: int, p: Parameters) -> list[str]:
    """All pairs of bodies: tiles through shared memory, reciprocal square roots, one store."""
    thread = block * p["bd"] + warp * 32
    lines = [*g.PRO, g.ins(0x70, g.LDG128, 16, (2,), g.stride(p["a"] + 16 * thread, 16, 16))]
    for tile in range(3):
        at = p["a"] + 16 * (tile * p["bd"] + warp * 32)
        lines += [g.ins(0x80, g.LDG128, 20, (2,), g.stride(at, 16, 16))]
        lines += [g.ins(0x90, "STS.128", None, (8, 20), (16, 1, f"0x{warp * 512:x} 16"))]
        lines += [g.ins(0xA0, "BAR.SYNC")]
        for body in range(10):
            lines += [g.ins(0xB0, "LDS.U.128", 24, (8,), (16, 1, f"0x{body * 16:x} 0"))]
            lines += [g.ins(0xC0, "FADD", 10, (24, 16)), g.ins(0xD0, "FFMA", 11, (10, 10, 11))]
            lines += [g.ins(0xE0, "MUFU.RSQ", 12, (11,)), g.ins(0xF0, "FFMA", 13, (12, 10, 13))]
        lines += [g.ins(0x100, "BAR.SYNC"), *g.loop_end(0x110)]
    lines += [g.ins(0x140, g.STG128, None, (2, 13), g.stride(p["c"] + 16 * thread, 16, 16))]
    return [*lines, g.ins(0x150, "EXIT")]


def escape(g: ModuleType, block: int, warp: int, p: Parameters) -> list[str]:
    """Escape times of a picture: most iterations in its middle blocks, and warps differ."""
    random, place = g.rng(p, block, warp), 2 * (block / p["grid"] - 0.5)
    trips = max(2, int(60 * math.exp(-6 * place * place) * random.uniform(0.5, 1.0)))
    trip = [*g.fp(0x100, 5, 2), g.ins(0x190, "FSETP.LT.AND", None, (10,)), g.ins(0x1A0, "BRA")]
    store = g.stride(p["c"] + 4 * (block * p["bd"] + warp * 32))
    lines = [*g.PRO, *trip * trips, g.ins(0x340, g.STG, None, (2, 10), store)]
    return [*lines, g.ins(0x350, "EXIT")]


def kernels_of(g: ModuleType) -> dict[str, Kernel]:
    """The kernels, by family; ``g`` is the shared generator, whose instructions and addresses they use."""
    return {each.__name__: partial(each, g) for each in (conv, probe, scan, nbody, escape)}
