"""Operators that have another name on another vendor's GPU (``aliases.toml``, with sources)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources

from assay_sampling.operations.identity import Operation


@cache
def aliases() -> Mapping[str, str]:
    """The canonical name of each operator that has one, by its other names."""
    text = resources.files(__package__).joinpath("aliases.toml").read_text(encoding="utf-8")
    return {other: name for name, entry in tomllib.loads(text).items() for other in entry["same"]}


def canonical(operation: Operation) -> Operation:
    """The operation under the name that it has on every vendor's GPU."""
    name = aliases().get(operation.name) if operation.kind == "operator" else None
    return operation if name is None else replace(operation, name=name)
