"""Packages of the extra ``analysis``, imported when they are needed."""

from __future__ import annotations

import importlib
from types import ModuleType

from assay_sampling.errors import MissingExtraError


def sklearn(module: str) -> ModuleType:
    """A module of scikit-learn. Raises MissingExtraError if it is not installed."""
    return _imported(f"sklearn.{module}", "sklearn")


def sparse() -> ModuleType:
    """``scipy.sparse``. Raises MissingExtraError if it is not installed."""
    return _imported("scipy.sparse", "scipy")


def spatial() -> ModuleType:
    """``scipy.spatial``. Raises MissingExtraError if it is not installed."""
    return _imported("scipy.spatial", "scipy")


def thread_limits() -> ModuleType:
    """``threadpoolctl``. Raises MissingExtraError if it is not installed."""
    return _imported("threadpoolctl", "threadpoolctl")


def _imported(module: str, package: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError("classifying launches", package, "analysis") from error
