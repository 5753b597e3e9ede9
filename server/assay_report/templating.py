"""Jinja2 as pages use it: every text is escaped, and characters that hide or turn text are shown."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from assay_sampling.errors import MissingExtraError
from assay_sampling.visible import visible

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def environment(package: str) -> Environment:
    """The environment of the templates of a package; raises MissingExtraError without Jinja2."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415
    except ImportError as missing:
        raise MissingExtraError("HTML report", "jinja2", "server") from missing
    return Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,  # it would ask the disk with every row of a page
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )


def _shown(value: Any) -> Any:
    """What an expression prints: markup of our own as it is; in foreign text, which is escaped afterwards,
    nothing hidden."""
    # Markup is a kind of text that has this method.
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
