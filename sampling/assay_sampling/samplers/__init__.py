"""Selection methods by name: those built in, and those that other packages add by entry point."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module, metadata
from typing import Any

from pydantic import BaseModel, ValidationError

from assay_sampling.errors import ParameterError
from assay_sampling.levels import check_levels
from assay_sampling.profile import Profile
from assay_sampling.samplers.base import Parameters, Sampler
from assay_sampling.samplers.needs import Needs, needs_of, require_measured
from assay_sampling.selection import Selection

ENTRY_POINT_GROUP = "assay.samplers"

_BUILT_IN = {
    "pks": ("assay_sampling.samplers.pks", "PksSampler"),
    "random": ("assay_sampling.samplers.random_sampling", "RandomSampler"),
    "systematic": ("assay_sampling.samplers.systematic", "SystematicSampler"),
    "stratified": ("assay_sampling.samplers.stratified", "StratifiedSampler"),
    "first_instructions": ("assay_sampling.samplers.first_instructions", "FirstInstructionsSampler"),
    "single_iteration": ("assay_sampling.samplers.single_iteration", "SingleIterationSampler"),
    "tbpoint": ("assay_sampling.samplers.tbpoint", "TBPointSampler"),
    "photon": ("assay_sampling.samplers.photon", "PhotonSampler"),
    "sieve": ("assay_sampling.samplers.sieve", "SieveSampler"),
    "stem": ("assay_sampling.samplers.stem", "StemSampler"),
}

__all__ = [
    "ENTRY_POINT_GROUP",
    "Needs",
    "Parameters",
    "Sampler",
    "methods_without_counters",
    "needs",
    "samplers",
    "select",
]


class _Samplers(Mapping[str, Sampler]):
    """Samplers by name, loaded when they are asked for: a broken plug-in breaks nothing but itself."""

    @cached_property
    def _plugins(self) -> dict[str, metadata.EntryPoint]:
        found = metadata.entry_points(group=ENTRY_POINT_GROUP)
        # A plug-in cannot take the name of a built-in method: results would not say which one it was.
        return {point.name: point for point in found if point.name not in _BUILT_IN}

    def __iter__(self) -> Iterator[str]:
        yield from _BUILT_IN
        yield from sorted(self._plugins)

    def __len__(self) -> int:
        return len(_BUILT_IN) + len(self._plugins)

    def __contains__(self, name: object) -> bool:
        return name in _BUILT_IN or name in self._plugins

    def __getitem__(self, name: str) -> Sampler:
        if name in _BUILT_IN:
            module, attribute = _BUILT_IN[name]
            sampler: Sampler = getattr(import_module(module), attribute)()
            return sampler
        return _load(self._plugins[name])


def samplers() -> Mapping[str, Sampler]:
    """All selection methods by name; getting one loads it.

    Getting a plug-in that cannot be loaded, or is no sampler, raises ParameterError naming it.
    """
    return _Samplers()


def _load(point: metadata.EntryPoint) -> Sampler:
    package = point.dist.name if point.dist is not None else "an unknown package"
    subject = f"method {point.name!r} of the package {package}"
    remedy = f"reinstall or uninstall {package}"
    try:
        loaded = point.load()
        sampler = loaded() if isinstance(loaded, type) else loaded
    except Exception as error:  # a plug-in may fail in any way at import
        raise ParameterError(
            subject, f"{point.value} cannot be loaded: {type(error).__name__}: {error}", remedy
        ) from error
    parameters = getattr(sampler, "parameters", None)
    if not (
        isinstance(sampler, Sampler) and isinstance(parameters, type) and issubclass(parameters, BaseModel)
    ):
        raise ParameterError(
            subject, f"{point.value} is no sampler: it needs name, parameters and select", remedy
        )
    return sampler


def select(method: str, profile: Profile, parameters: Mapping[str, Any], seed: int = 0) -> Selection:
    """Make a selection by the name of its method; texts are taken for the numbers they spell.

    Raises ParameterError for an unknown method, parameter or value, RefusedError where the method does
    not apply to the profile, or its two levels are not of one workload.
    """
    sampler = _sampler(method, "select")
    validated = _validated(method, sampler, parameters)
    wanted = needs_of(sampler, validated)
    if wanted is not None:
        require_measured(method, wanted, profile)
    # A method that joins the levels aligns them itself; the others would pass a wrong pair on in silence.
    if profile.detailed is not None and profile.light is not None and not _joins_levels(sampler):
        check_levels(profile.detailed, profile.light)
    return sampler.select(profile, validated, seed=seed)


def needs(method: str, parameters: Mapping[str, Any], *, verb: str = "metrics") -> Needs | None:
    """Which counters a method looks at with these parameters; None where a package's own does not say.

    ``verb`` is what an unknown method is told by. Raises as :func:`select` for an unknown method, parameter
    or value.
    """
    sampler = _sampler(method, verb)
    return needs_of(sampler, _validated(method, sampler, parameters))


@cache
def methods_without_counters() -> tuple[str, ...]:
    """The built-in methods for which a light recording is enough."""
    found = ((name, needs(name, {})) for name in _BUILT_IN)
    return tuple(name for name, wanted in found if wanted is not None and wanted.nothing)


def _sampler(method: str, verb: str) -> Sampler:
    known = samplers()
    if method not in known:
        close = difflib.get_close_matches(method, known, n=1)
        hint = f"did you mean {close[0]}? There are" if close else "use one of"
        raise ParameterError(verb, f"there is no method {method!r}", f"{hint} {', '.join(known)}")
    return known[method]


def _joins_levels(sampler: Sampler) -> bool:
    return bool(getattr(sampler, "joins_levels", False))


def _validated(method: str, sampler: Sampler, parameters: Mapping[str, Any]) -> BaseModel:
    model = sampler.parameters
    remedy = f"it has {', '.join(model.model_fields) or 'no parameters'}"
    if model.model_config.get("extra") != "allow":
        unknown = [name for name in parameters if name not in model.model_fields]
        if unknown:
            raise ParameterError(method, f"there is no parameter {unknown[0]!r}", remedy)
    try:
        return model.model_validate(dict(parameters))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        message = first["msg"][:1].lower() + first["msg"][1:]
        given = f"parameter {name!r}: {message}, not {str(first['input'])[:80]!r}" if name else message
        raise ParameterError(method, given, remedy) from error
