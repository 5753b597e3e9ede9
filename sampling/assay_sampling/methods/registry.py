"""Selection methods by name: those built in, and those that other packages add by entry point."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import import_module, metadata
from typing import Any

from pydantic import BaseModel, ValidationError

from assay_sampling.counters.missing import how_to_collect
from assay_sampling.errors import ParameterError
from assay_sampling.launches.in_memory import Launches
from assay_sampling.launches.levels import check_levels
from assay_sampling.launches.profile import Profile
from assay_sampling.methods import plug_ins
from assay_sampling.methods.base import (
    Sampler,
    weights_asked,
    with_both_weights,
    with_cell_times,
    with_design,
    with_expected,
)
from assay_sampling.methods.built_in import BUILT_IN
from assay_sampling.methods.needs import Needs, needs_of, require_measured
from assay_sampling.methods.tried import GroupingSampler, Tried, TryingSampler, try_seeds
from assay_sampling.parameters import MethodParameters
from assay_sampling.scoring.selection import Selection
from assay_sampling.scoring.trials import LEAST_TRIALS

ENTRY_POINT_GROUP = "assay.samplers"


class _Samplers(Mapping[str, Sampler]):
    """Samplers by name, loaded on request, so that a broken plug-in harms only itself."""

    @cached_property
    def plugins(self) -> dict[str, metadata.EntryPoint]:
        points = metadata.entry_points(group=ENTRY_POINT_GROUP)
        # A plug-in cannot take the name of a built-in method: results would not say which one it was.
        return {point.name: point for point in points if point.name not in BUILT_IN}

    def __iter__(self) -> Iterator[str]:
        yield from BUILT_IN
        yield from sorted(self.plugins)

    def __len__(self) -> int:
        return len(BUILT_IN) + len(self.plugins)

    def __contains__(self, name: object) -> bool:
        return name in BUILT_IN or name in self.plugins

    def __getitem__(self, name: str) -> Sampler:
        if name in BUILT_IN:
            module, attribute = BUILT_IN[name]
            sampler: Sampler = getattr(import_module(module), attribute)()
            return sampler
        return plug_ins.load(self.plugins[name])


def samplers() -> Mapping[str, Sampler]:
    """All selection methods by name; getting one loads it.

    Getting a plug-in that cannot be loaded, or is not a sampler, raises ParameterError naming it.
    """
    return _Samplers()


def package_of(method: str) -> tuple[str, str] | None:
    """The package that a method comes from, and its version; None for a built-in or unknown method."""
    point = _Samplers().plugins.get(method)
    return None if point is None else plug_ins.package_of(point)


def methods_of_others() -> tuple[str, ...]:
    """The names of methods of other packages, whether or not they can be loaded."""
    return tuple(sorted(_Samplers().plugins))


def unknown_parameters(sampler: Sampler, parameters: Mapping[str, Any]) -> list[str]:
    """Names that are not parameters of a method."""
    if sampler.parameters.model_config.get("extra") == "allow":
        return []
    fields = {*sampler.parameters.model_fields, *MethodParameters.model_fields}
    return [name for name in parameters if name not in fields]


def own_parameters(sampler: Sampler, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that a method's own model has, without those of every method that it leaves to us."""
    fields = sampler.parameters.model_fields
    return {
        name: value
        for name, value in parameters.items()
        if name in fields or name not in MethodParameters.model_fields
    }


def select(method: str, profile: Profile, parameters: Mapping[str, Any], seed: int = 0) -> Selection:
    """Make a selection by the name of its method; numbers may be given as texts.

    Raises ParameterError for an unknown method, parameter or value, RefusedError where the method does
    not apply to the profile, or its two levels are not of one workload.
    """
    return select_and_try(method, profile, parameters, seed, 0).selection


def select_and_try(
    method: str, profile: Profile, parameters: Mapping[str, Any], seed: int = 0, count: int = LEAST_TRIALS
) -> Tried:
    """As :func:`select`, with ``count`` further tries of the method where chance or costs decide something
    (:mod:`assay_sampling.methods.tried`)."""
    made = prepared(method, profile, parameters)
    sampler, validated = made.sampler, made.parameters
    if isinstance(sampler, TryingSampler):
        tried = sampler.select_and_try(profile, validated, seed=seed, count=count)
    else:
        tried = Tried(sampler.select(profile, validated, seed=seed))
        if count and method not in BUILT_IN:
            tried = try_seeds(
                lambda other: sampler.select(profile, validated, seed=other), tried.selection, seed, count
            )
    if (
        tried.trials is not None
        and tried.trials.basis == "draws"
        and weights_asked(validated) == "light_time"
    ):
        # Launches drawn by light time are for weights by light time, with which every draw is exact here.
        tried = replace(tried, trials=None, otherwise="by_construction")
    return replace(tried, selection=made.completed(made.weighed(tried.selection)))


@dataclass(frozen=True)
class Prepared:
    """A method that applies to a profile, with checked parameters: its own and those of every method."""

    sampler: Sampler
    profile: Profile
    parameters: BaseModel
    common: MethodParameters | None

    def drawn(self, seed: int, groups: dict[int, Any] | None = None) -> Selection:
        """The selection of a seed with what scores it at home and elsewhere: launches, weights and groups.

        ``groups``: by seed those that the method made on this profile with other weights or another budget;
        what is missing is added. What :meth:`completed` adds says how far to trust a selection, and takes a
        share of the time.
        """
        sampler, profile, parameters = self.sampler, self.profile, self.parameters
        if groups is None or not isinstance(sampler, GroupingSampler):
            return self.weighed(sampler.select(profile, parameters, seed=seed))
        if seed not in groups:
            groups[seed] = sampler.grouped(profile, parameters, seed=seed)
        return self.weighed(sampler.select_grouped(profile, parameters, groups[seed], seed=seed))

    def completed(self, selection: Selection) -> Selection:
        """A weighed selection with what intervals on other GPUs need, the errors to expect there, and the
        light time by group, kernel and size."""
        profile = self.profile
        return with_cell_times(with_expected(with_design(selection, profile), profile), profile)

    def weighed(self, selection: Selection) -> Selection:
        """A selection of the method with both kinds of weights."""
        if self.common is None:
            return selection
        return with_both_weights(selection, self.profile, self.common.weights)


def prepared(method: str, profile: Profile, parameters: Mapping[str, Any]) -> Prepared:
    """The method with its parameters, after checking once that it applies to the profile.

    Raises as :func:`select`, before it selects.
    """
    sampler = _sampler(method, "select")
    common, own = _split(sampler, parameters)
    validated = _fitted(sampler, _validated(method, sampler, own), profile)
    method_needs = needs_of(sampler, validated)
    if method_needs is not None:
        require_measured(method, method_needs, profile)
    # A method that joins the levels aligns them itself; the others would silently accept a wrong pair.
    if profile.detailed is not None and profile.light is not None and not _joins_levels(sampler):
        check_levels(profile.detailed, profile.light)
    return Prepared(sampler, profile, validated, common)


def checked_parameters(method: str, profile: Profile, parameters: Mapping[str, Any]) -> BaseModel:
    """The parameters that a method would use on a profile; raises ParameterError as :func:`select`."""
    sampler = _sampler(method, "select")
    return _fitted(sampler, _validated(method, sampler, _split(sampler, parameters)[1]), profile)


def needs(method: str, parameters: Mapping[str, Any], *, verb: str = "metrics") -> Needs | None:
    """The counters that a method uses with these parameters; None for a plug-in that does not say.

    ``verb`` is the subject of the error for an unknown method. Raises as :func:`select` for an unknown
    method, parameter or value.
    """
    sampler = _sampler(method, verb)
    return needs_of(sampler, _validated(method, sampler, _split(sampler, parameters)[1]))


@cache
def methods_without_counters() -> tuple[str, ...]:
    """The built-in methods for which a light recording is enough."""
    needs_by_name = ((name, needs(name, {})) for name in BUILT_IN)
    return tuple(
        name for name, method_needs in needs_by_name if method_needs is not None and method_needs.nothing
    )


def without_counters(method: str, method_needs: Needs, launches: Launches) -> str:
    """The remedy for launches without counters: what to collect, and which methods need none."""
    remedy = how_to_collect(method_needs.to_collect(), method, launches.table)
    return f"{remedy}, or use a method that needs no counters: {', '.join(methods_without_counters())}"


def _sampler(method: str, verb: str) -> Sampler:
    methods = samplers()
    if method not in methods:
        close = difflib.get_close_matches(method, methods, n=1)
        hint = f"did you mean {close[0]}? The methods are" if close else "use one of"
        raise ParameterError(verb, f"there is no method {method!r}", f"{hint} {', '.join(methods)}")
    return methods[method]


def _split(
    sampler: Sampler, parameters: Mapping[str, Any]
) -> tuple[MethodParameters | None, Mapping[str, Any]]:
    """The parameters that every method has, None if its own model has them too, and the others."""
    if set(MethodParameters.model_fields) <= set(sampler.parameters.model_fields):
        return None, parameters
    every = {name: value for name, value in parameters.items() if name in MethodParameters.model_fields}
    own = own_parameters(sampler, parameters)
    common = _of_model(sampler.name, MethodParameters, every)
    assert isinstance(common, MethodParameters)
    return common, own


def _fitted(sampler: Sampler, parameters: BaseModel, profile: Profile) -> BaseModel:
    """The parameters with the defaults that a sampler has for profiles of this kind, if it says so."""
    fit = getattr(sampler, "fitted", None)
    fitted: BaseModel = fit(parameters, profile) if callable(fit) else parameters
    return fitted


def _joins_levels(sampler: Sampler) -> bool:
    return bool(getattr(sampler, "joins_levels", False))


def _validated(method: str, sampler: Sampler, parameters: Mapping[str, Any]) -> BaseModel:
    return _of_model(method, sampler.parameters, parameters)


def _of_model(method: str, model: type[BaseModel], parameters: Mapping[str, Any]) -> BaseModel:
    remedy = f"it has {', '.join(model.model_fields) or 'no parameters'}"
    if model.model_config.get("extra") != "allow":
        unknown = [name for name in parameters if name not in model.model_fields]
        if unknown:
            close = difflib.get_close_matches(unknown[0], model.model_fields, n=1)
            hint = f"did you mean {close[0]}? {remedy[0].upper()}{remedy[1:]}" if close else remedy
            raise ParameterError(method, f"there is no parameter {unknown[0]!r}", hint)
    try:
        return model.model_validate(dict(parameters))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        message = first["msg"][:1].lower() + first["msg"][1:]
        cause = f"parameter {name!r}: {message}, not {str(first['input'])[:80]!r}" if name else message
        raise ParameterError(method, cause, remedy) from error
