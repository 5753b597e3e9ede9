"""One thread for numeric libraries: sums in another order differ in their last digits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from assay_sampling.errors import MissingExtraError

try:
    # Limits only reach libraries that are already loaded, so load scikit-learn's first.
    import sklearn.cluster  # noqa: F401
    from threadpoolctl import threadpool_limits
except ImportError as missing:
    raise MissingExtraError("analysis", "sklearn", "analysis") from missing


@contextmanager
def single_threaded() -> Iterator[None]:
    """Inside, BLAS and OpenMP use one thread, so that the same input gives the same bytes."""
    with threadpool_limits(limits=1):
        yield
