"""The doctor's look at the CUPTI tracer: is it built, or could it be?"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from assay_agent.doctor.check import Check
from assay_agent.tracer.build import find_tracer, why_unavailable

_NAME = "CUPTI tracer"


def tracer_check() -> Check:
    """Never missing: light runs are made with Nsight Systems unless a campaign asks for the tracer."""
    value = os.environ.get("ASSAY_TRACER")
    path = find_tracer()
    if path is not None:
        return Check(_NAME, "ok", str(path))
    if value and not Path(value).exists():
        return Check(_NAME, "note", f"ASSAY_TRACER names {value}, which is not there", "correct or unset it")
    why = why_unavailable()
    compiler = (shlex.split(os.environ.get("CC", "")) or ["cc"])[0]
    if shutil.which(compiler) is None:
        why = why or f"there is no C compiler {compiler}"
    remedy = (
        "for campaigns with 'light: cupti': install a C compiler, then python -m assay_agent.tracer.build"
    )
    return Check(_NAME, "note", f"not built{f' ({why})' if why else ''}", remedy)
