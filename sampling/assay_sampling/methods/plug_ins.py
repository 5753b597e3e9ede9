"""Methods of other packages: loaded by their entry point, and kept from harming anything but themselves.

Whatever such a method does, an error names it and its package. Source: docs/how-to/own-method.md.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Any

import numpy as np
from pydantic import BaseModel

from assay_sampling.errors import AssayError, MethodFailedError, ParameterError
from assay_sampling.launches.profile import Profile
from assay_sampling.methods.base import Sampler
from assay_sampling.methods.needs import Needs, needs_of
from assay_sampling.methods.parameter_help import parameter_table
from assay_sampling.methods.tried import Tried, TryingSampler
from assay_sampling.scoring.selection import Selection


def package_of(point: metadata.EntryPoint) -> tuple[str, str]:
    """The package that registered an entry point, and its version."""
    return ("an unknown package", "") if point.dist is None else (point.dist.name, point.dist.version)


def load(point: metadata.EntryPoint) -> PlugIn:
    """The method of an entry point; raises ParameterError if it cannot be loaded or is not a sampler."""
    package, _ = package_of(point)
    subject = f"method {point.name!r} of the package {package}"
    remedy = f"reinstall or uninstall {package}"
    try:
        loaded = point.load()
        sampler = loaded() if isinstance(loaded, type) else loaded
    except (Exception, SystemExit) as error:  # a plug-in may fail in any way at import
        raise ParameterError(
            subject, f"{point.value} cannot be loaded: {type(error).__name__}: {error}", remedy
        ) from error
    parameters = getattr(sampler, "parameters", None)
    if not (
        isinstance(sampler, Sampler) and isinstance(parameters, type) and issubclass(parameters, BaseModel)
    ):
        raise ParameterError(
            subject, f"{point.value} is not a sampler: it needs name, parameters and select", remedy
        )
    kind = TryingPlugIn if isinstance(sampler, TryingSampler) else PlugIn
    return kind(point.name, sampler, subject, package)


class PlugIn:
    """A sampler of another package, whose errors name it and whose selections are checked.

    Args:
        name: of its entry point, which people type.
        sampler: what the package gave.
        subject: what errors call it.
        package: whose authors should hear of its errors.
    """

    def __init__(self, name: str, sampler: Any, subject: str, package: str) -> None:
        self.name = name
        self.parameters: type[BaseModel] = sampler.parameters
        self.joins_levels = bool(getattr(sampler, "joins_levels", False))
        self._sampler = sampler
        self._subject = subject
        self._package = package

    def select(self, profile: Profile, parameters: Any, *, seed: int) -> Selection:
        """As the sampler selects; raises MethodFailedError for any failure and for nonsense."""
        selection: Selection = self._checked(
            lambda: self._sampler.select(profile, parameters, seed=seed), profile
        )
        return selection

    def needs(self, parameters: Any) -> Needs | None:
        """The counters that it uses; None if it does not say."""
        with self._named():
            return needs_of(self._sampler, parameters)

    def fitted(self, parameters: BaseModel, profile: Profile) -> BaseModel:
        """The parameters with its defaults for profiles of this kind, if it has any."""
        fit = getattr(self._sampler, "fitted", None)
        with self._named():
            with_defaults: BaseModel = fit(parameters, profile) if callable(fit) else parameters
        return with_defaults

    def page(self) -> str:
        """Its page in Markdown: its attribute ``page``, else its docstring, with the table of parameters."""
        with self._named():
            text = getattr(self._sampler, "page", None) or inspect.getdoc(type(self._sampler)) or ""
            table = parameter_table(self.parameters)
        head = f"# {self.name}\n\nA method of the package {self._package}."
        return f"{head}\n\n{text}\n\n## Parameters\n\n{table}\n"

    def about(self) -> str:
        """One line about it: the first of its docstring."""
        return (inspect.getdoc(type(self._sampler)) or "").partition("\n")[0]

    def _checked(self, make: Callable[[], Any], profile: Profile) -> Any:
        with self._named():
            made = make()
            nonsense = _nonsense(made, len(profile.whole))
        if nonsense:
            raise self._failed(f"it returned {nonsense}")
        return made

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Typed errors say what they say; everything else becomes an error that names the plug-in."""
        try:
            yield
        except MethodFailedError as error:
            raise self._failed(error.cause) from error
        except AssayError:
            raise
        except (Exception, SystemExit) as error:
            raise self._failed(f"it failed with {type(error).__name__}: {error}") from error

    def _failed(self, cause: str) -> MethodFailedError:
        return MethodFailedError(
            self._subject,
            cause,
            f"report it to the authors of {self._package}; other methods are not affected",
        )


class TryingPlugIn(PlugIn):
    """One that has further tries of its own."""

    def select_and_try(self, profile: Profile, parameters: Any, *, seed: int, count: int) -> Tried:
        """As the sampler does."""

        def make() -> Any:
            tried.append(self._sampler.select_and_try(profile, parameters, seed=seed, count=count))
            return getattr(tried[0], "selection", None)

        tried: list[Tried] = []
        self._checked(make, profile)
        return tried[0]


def _nonsense(made: object, launches: int) -> str:
    """What is wrong with a selection of ``launches`` launches; empty if it can be scored."""
    if not isinstance(made, Selection):
        return f"{type(made).__name__}, not a Selection"
    chosen, groups = made.representatives, len(made.group_launches)
    rows, weights = np.asarray(chosen.row), np.asarray(chosen.weight)
    if not len(rows) == len(weights) == len(chosen.group) or not len(rows):
        return f"{len(rows)} representatives with {len(weights)} weights in {len(chosen.group)} groups"
    if rows.min() < 0 or rows.max() >= launches:
        return (
            f"the launch in row {rows.max() if rows.max() >= launches else rows.min()} of {launches:,} rows"
        )
    if not np.isfinite(weights).all() or weights.min() < 0:
        bad = weights[~np.isfinite(weights) | (weights < 0)][0]
        return f"the weight {bad:g}"
    if chosen.group.min() < 0 or chosen.group.max() >= groups:
        return f"a representative of group {chosen.group.max()}, and it has {groups} groups"
    return "" if made.labels is None else _wrong_labels(made, launches)


def _wrong_labels(made: Selection, launches: int) -> str:
    labels, groups = np.asarray(made.labels), len(made.group_launches)
    if labels.shape != (launches,):
        return f"labels of shape {labels.shape} for {launches:,} launches"
    if labels.min() < 0 or labels.max() >= groups:
        return f"labels from {labels.min()} to {labels.max()}, and it has {groups} groups"
    if not np.array_equal(np.bincount(labels, minlength=groups), made.group_launches):
        return "groups whose sizes are not those of its labels"
    if not np.array_equal(labels[made.representatives.row], made.representatives.group):
        return "a representative that is not in its group"
    return ""
