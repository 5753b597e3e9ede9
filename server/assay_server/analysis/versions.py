"""Versions of the programs that compute the numbers: a report names them, as labels may change with them."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib import metadata

from assay_sampling.errors import MissingExtraError
from assay_sampling.methods.registry import package_of

_OURS = "assay"
_DISTRIBUTIONS = {
    _OURS: "assay-gpu",
    "numpy": "numpy",
    "pyarrow": "pyarrow",
    "scikit-learn": "scikit-learn",
}


def versions(methods: Iterable[str] = ()) -> dict[str, str]:
    """Versions by program, and by package of those ``methods`` that other packages bring.

    Raises MissingExtraError where the analysis extra is not installed.
    """
    programs = {}
    for name, distribution in _DISTRIBUTIONS.items():
        try:
            programs[name] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            if name == _OURS:  # running from a checkout that was never installed
                programs[name] = "checkout"
                continue
            raise MissingExtraError("analysis", name, "analysis") from None
    packages = dict(package for name in methods if (package := package_of(name)) is not None)
    return {**programs, "python": platform.python_version(), **packages}
