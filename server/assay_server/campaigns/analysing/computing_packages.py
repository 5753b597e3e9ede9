"""The packages whose releases numbers may change with: a worker elsewhere gets tasks only if it has them."""

from __future__ import annotations

# Besides Python. A report names some of them.
_ALWAYS = ("assay-gpu", "numpy", "pyarrow", "scikit-learn", "scipy", "pydantic", "duckdb")


def computing_packages() -> tuple[str, ...]:
    """These packages, and those that bring a method that is installed here."""
    from assay_sampling.methods.registry import methods_of_others, package_of  # noqa: PLC0415 - loads methods

    brought = {package[0] for name in methods_of_others() if (package := package_of(name)) is not None}
    return (*_ALWAYS, *sorted(brought.difference(_ALWAYS)))
