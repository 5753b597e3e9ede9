"""Kernel families of the simulator logs, split by name: a half to choose rules on, a half to report on.

A family is what one generator function writes: its launches share code, so they are never divided between
the halves. Both halves have blocks of uneven length, kernels that change while they run, kernels that stay on
the chip and kernels that stream. The split was written down before any rule was measured on it.
"""

from __future__ import annotations

from enum import StrEnum


class Half(StrEnum):
    """What a family is for: ``choosing`` parameters, or ``reporting`` numbers that nothing was chosen on."""

    CHOOSING = "choosing"
    REPORTING = "reporting"


FAMILY_OF_KERNEL = {
    "_Z9histogramPKiPii": "atomic",
    "_Z3bfsPKiS0_Pii": "bfs",
    "_Z9irregularPKiPKfPfi": "bfs",
    "_Z7fmaloopPKfPfi": "fma",
    "_Z6matmulPKfS0_Pfi": "gemm",
    "_Z12matmul_splitPKfS0_Pfi": "gemm",
    "_Z7tilemulPKfS0_Pfi": "gemm",
    "_Z8periodicPKfPfi": "periodic",
    "_Z8twophasePKfS0_Pfi": "phases",
    "_Z8membeforPKfS0_Pfi": "phases",
    "_Z6reducePKfPfi": "reduce",
    "_Z7softmaxPfi": "reduce",
    "_Z9coldfirstPKfPfi": "reuse",
    "_Z9stencil2dPKfPfi": "stencil",
    "_Z7stencilPKfPfi": "stencil",
    "_Z6vecaddPKfS0_Pfi": "stream",
    "_Z3sgdPfPKfS_fi": "stream",
    "_Z6memsetPfi": "stream",
}
HALF_OF_FAMILY = {
    "atomic": Half.CHOOSING,
    "gemm": Half.CHOOSING,
    "phases": Half.CHOOSING,
    "reuse": Half.CHOOSING,
    "stencil": Half.CHOOSING,
    "bfs": Half.REPORTING,
    "fma": Half.REPORTING,
    "periodic": Half.REPORTING,
    "reduce": Half.REPORTING,
    "stream": Half.REPORTING,
}


def half_of(kernel: str) -> Half:
    """The half of a kernel's family; raises KeyError for a kernel that is in no family."""
    return HALF_OF_FAMILY[FAMILY_OF_KERNEL[kernel]]
