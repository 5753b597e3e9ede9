"""The public names of ``import assay`` with their signatures, a line each: what a release promises."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import assay


def python_names() -> list[str]:
    """All names, classes in order, their members sorted; a deprecated one says so."""
    return [line for name in assay.__all__ for line in _class_lines(name, getattr(assay, name))]


def _class_lines(name: str, kind: type) -> Iterator[str]:
    yield f"{name}{_without_self(kind.__init__) if name in _MADE_BY_ITS_NAME else ''}"
    own = (member for member in vars(kind) if not member.startswith("_") or member in _SPECIAL)
    for member in sorted(own):
        raw = vars(kind)[member]
        found = inspect.unwrap(raw.__func__) if isinstance(raw, classmethod | staticmethod) else raw
        mark = " (deprecated)" if hasattr(found, "__deprecated__") else ""
        if isinstance(raw, property):
            yield f"{name}.{member} -> {inspect.signature(raw.fget).return_annotation}{mark}"
        elif callable(found):
            yield f"{name}.{member}{_without_self(found)}{mark}"


_SPECIAL = ("__len__", "__enter__", "__exit__")
# Objects of the other classes come from methods; what their constructors take is no promise.
_MADE_BY_ITS_NAME = ("Server",)


def _without_self(function: object) -> str:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    parameters = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    # Annotations are texts, which a signature shows in quotes.
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature.replace(parameters=parameters)))
