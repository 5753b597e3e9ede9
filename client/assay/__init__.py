"""Assay in notebooks and scripts: ``import assay``. The page is docs/python.md.

    profile = assay.Profile.read("window.csv", light="whole.sqlite")
    selection = profile.select("pks", target_error_percent=5)
    selection.to_pandas()
    selection.evaluate(assay.Profile.read("other_gpu.csv")).error_percent
    profile.compare().to_pandas()

Names of ``__all__`` are stable. Each is loaded when it is first used, so that the import costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.campaigns import Campaign
    from assay.comparisons import Comparison
    from assay.evaluations import Evaluation, RelativeEvaluation
    from assay.plots import Plot
    from assay.profiles import Profile
    from assay.records import Records, RecordStream
    from assay.selections import Selection
    from assay.servers import Server
    from assay.simulations import Simulation
    from assay_sampling.errors import AssayError

__all__ = [
    "AssayError",
    "Campaign",
    "Comparison",
    "Evaluation",
    "Plot",
    "Profile",
    "RecordStream",
    "Records",
    "RelativeEvaluation",
    "Selection",
    "Server",
    "Simulation",
]

_HOMES = {
    "AssayError": "assay_sampling.errors",
    "Campaign": "assay.campaigns",
    "Comparison": "assay.comparisons",
    "Evaluation": "assay.evaluations",
    "Plot": "assay.plots",
    "Profile": "assay.profiles",
    "RecordStream": "assay.records",
    "Records": "assay.records",
    "RelativeEvaluation": "assay.evaluations",
    "Selection": "assay.selections",
    "Server": "assay.servers",
    "Simulation": "assay.simulations",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'assay' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
