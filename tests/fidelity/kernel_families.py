"""Kernel families of simulator logs: those to choose rules on, and those to report on.

A family is what one generator function writes: its launches share code, so they are never divided. The rule
``waves`` was chosen with the logs of the shared data in view, and with three families of
:mod:`tests.fidelity.recorded_families`; nobody had looked at the others before it was fixed.
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
FAMILIES = {
    Half.CHOOSING: (
        *("atomic", "bfs", "fma", "gemm", "periodic", "phases", "reduce", "reuse", "stencil", "stream"),
        *("div", "lds", "ramp"),
    ),
    Half.REPORTING: ("conv", "escape", "gather", "nbody", "probe", "scan", "spmv", "tail", "trans"),
}
