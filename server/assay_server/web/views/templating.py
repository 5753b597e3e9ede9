"""The templates of the page. Every text is escaped, and characters that hide or turn text are shown."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from assay_core.program import distribution_version
from assay_sampling.visible import visible
from assay_server.web.views import words
from assay_server.web.views.region import Region

STATIC = ("page.css", "live.js")


def _shown(value: Any) -> Any:
    """What an expression prints: markup of our own as it is, foreign text made visible, then escaped."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def environment() -> Environment:
    """The environment of all templates."""
    made = Environment(
        loader=PackageLoader("assay_server.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,  # it would ask the disk with every row
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.filters |= {
        "span": words.span,
        "moment": words.moment,
        "amount": words.amount,
        "size": words.size,
        "percent": words.percent,
        "condition": words.condition,
        "figure_id": lambda name: element_id("f", name),
    }
    return made


def rendered(template: str, **given: Any) -> str:
    """A template with its values."""
    return environment().get_template(template).render(**given)


def part(name: str, **values: Any) -> Region:
    """A region without rows, of the template ``part_NAME``."""
    return Region({"": rendered(f"part_{name}.html.j2", **values)})


def rows(name: str, values_by_key: Mapping[str, Mapping[str, Any]], **same: Any) -> Region:
    """A region with a row of the template ``row_NAME`` for each key, with its values and those of all."""
    pieces = {}
    for key, values in values_by_key.items():
        row = element_id(name, key)
        pieces[row] = rendered(f"row_{name}.html.j2", row=row, **values, **same)
    return Region(pieces)


@cache
def static_files() -> Mapping[str, bytes]:
    """Style and script, as they are in the package."""
    folder = resources.files("assay_server.web") / "static"
    return {name: (folder / name).read_bytes() for name in STATIC}


@cache
def release() -> str:
    """What a page and its server compare: the release, and a hash of templates, style and script."""
    digest = hashlib.sha256()
    for name, data in sorted(static_files().items()):
        digest.update(name.encode() + data)
    folder = resources.files("assay_server.web") / "templates"
    for each in sorted(folder.iterdir(), key=lambda one: one.name):
        digest.update(each.read_bytes())
    return f"{distribution_version()}-{digest.hexdigest()[:10]}"


def element_id(kind: str, name: str) -> str:
    """An ``id`` for an element about something whose name may hold anything."""
    return f"{kind}-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:12]}"
