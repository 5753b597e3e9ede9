"""One thread for numeric libraries: sums in another order differ in their last digits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from assay_sampling.errors import MissingExtraError

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
