"""How a program announces its operators: as NVTX ranges in the form of PyTorch's ``emit_nvtx``.

A workload announces them itself if it has the argument ``--emit-nvtx``, as a program does that runs in
``torch.autograd.profiler.emit_nvtx(record_shapes=True)``; or Nsight Systems makes it, by ``--pytorch``.
Source of the form: PyTorch, torch/csrc/profiler/util.cpp, ``getNvtxStr``.
"""

from __future__ import annotations

from collections.abc import Sequence

from assay_virtual.model.operators import OperatorCalls

EMIT_NVTX = "--emit-nvtx"
_WITHOUT_SHAPES, _WITH_SHAPES = "autograd-nvtx", "autograd-shapes-nvtx"


def announced(calls: OperatorCalls, arguments: Sequence[str], pytorch: str = "none") -> list[str] | None:
    """The text of each call's range; None if the program announces no operators.

    ``arguments`` are the program's, ``pytorch`` is the value of that option of Nsight Systems.
    """
    wishes = pytorch.split(",")
    shapes = EMIT_NVTX in arguments or _WITH_SHAPES in wishes
    if not shapes and _WITHOUT_SHAPES not in wishes:
        return None
    columns = (calls.ordinal.tolist(), calls.name.tolist(), calls.input_shapes.tolist())
    return [
        f"{calls.texts[name]}, seq = {ordinal}, op_id = {ordinal + 1}"
        + (f", sizes = {calls.texts[sizes]}" if shapes and sizes >= 0 else "")
        for ordinal, name, sizes in zip(*columns, strict=True)
    ]
