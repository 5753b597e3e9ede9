"""What makes numbers reproducible: one thread for numeric libraries, and the versions of the programs.

Sums in another order differ in their last digits, and labels may change with versions: a report names them.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import metadata

from assay_sampling.errors import MissingExtraError
from assay_sampling.methods.registry import package_of

try:
    from threadpoolctl import threadpool_limits
except ImportError as missing:
    raise MissingExtraError("analysis", "threadpoolctl", "analysis") from missing

# OpenMP and the BLAS libraries read these when they are loaded.
_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")


@contextmanager
def single_threaded() -> Iterator[None]:
    """Inside, BLAS and OpenMP use one thread, so that the same input gives the same bytes.

    This also holds for libraries that are loaded inside, which keep one thread afterwards: scikit-learn costs
    a second to load, and most analyses do not need it.
    """
    before = {name: os.environ.get(name) for name in _VARIABLES}
    os.environ.update(dict.fromkeys(_VARIABLES, "1"))
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


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
