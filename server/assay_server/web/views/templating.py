"""The templates of the page, and the regions that they draw."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache, partial
from importlib import resources
from typing import Any

from jinja2 import Environment

from assay_core.program import distribution_version
from assay_report.templating import environment
from assay_server.web.views import words
from assay_server.web.views.region import Region

STATIC = ("page.css", "live.js")


@cache
def _environment() -> Environment:
    pages = environment("assay_server.web")
    pages.filters |= {
        name: getattr(words, name) for name in ("span", "moment", "amount", "size", "percent", "condition")
    }
    pages.filters["figure_id"] = partial(element_id, "f")
    return pages


def rendered(template: str, **given: Any) -> str:
    """A template with its values."""
    return _environment().get_template(template).render(**given)


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
