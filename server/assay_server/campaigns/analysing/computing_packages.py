"""The packages whose releases numbers may change with.

A kept workload counts only under the same releases, and a worker elsewhere gets tasks only if it has them.
"""

from __future__ import annotations

from collections.abc import Iterable

# Besides Python. A report names some of them.
_ALWAYS = ("assay-gpu", "numpy", "pyarrow", "scikit-learn", "scipy", "pydantic", "duckdb")


def computing_packages(methods: Iterable[str]) -> tuple[str, ...]:
    """These packages, and those that bring ``methods``."""
    from assay_sampling.methods.registry import package_of  # noqa: PLC0415 - it loads the methods

    brought = {package[0] for name in methods if (package := package_of(name)) is not None}
    return (*_ALWAYS, *sorted(brought.difference(_ALWAYS)))


def packages_of_all_methods() -> tuple[str, ...]:
    """Those of every method that is installed here."""
    from assay_sampling.methods.registry import methods_of_others  # noqa: PLC0415 - it loads the methods

    return computing_packages(methods_of_others())
