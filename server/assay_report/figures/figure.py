"""A figure: a Vega-Lite document with its title, its caption and the reason why it may be empty."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from assay_report.figures.text import file_name, in_one_line
from assay_report.figures.theme import QUIET, WIDTH_PX, config
from assay_sampling.documents.base import plain
from assay_sampling.errors import MissingExtraError

if TYPE_CHECKING:
    import altair

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""Names the language of a specification; nothing fetches it."""

EXTRA = "figures"


@dataclass(frozen=True)
class Figure:
    """A figure.

    ``name``: its file's name without a suffix. ``title``: what it shows. ``caption``: how to read it.
    ``spec``: one Vega-Lite document, whose data is inside. ``empty``: why there is nothing to see, or None.
    ``workload``: the workload that it is about, or None for the whole suite. ``described``: its content in
    words, for readers who do not see it.
    """

    name: str
    title: str
    caption: str
    spec: Mapping[str, Any]
    empty: str | None = None
    workload: str | None = None
    described: str = ""

    def spec_bytes(self) -> bytes:
        """The specification as JSON: one input gives the same bytes."""
        return (json.dumps(self.spec, ensure_ascii=False, allow_nan=False) + "\n").encode()

    def named(self, name: str) -> Figure:
        """The figure under another name."""
        return self if name == self.name else replace(self, name=name)

    def chart(self) -> altair.TopLevelMixin:
        """The figure as a chart of Altair, for notebooks; raises MissingExtraError without it."""
        try:
            import altair  # noqa: PLC0415 - comes with the extra `figures`
        except ImportError as missing:
            raise MissingExtraError("figures", "altair", EXTRA) from missing
        altair_chart: altair.TopLevelMixin = altair.Chart.from_dict(dict(self.spec))
        return altair_chart


def made(
    name: str,
    title: str,
    caption: str,
    view: Mapping[str, Any],
    *,
    workload: str | None = None,
    described: str = "",
) -> Figure:
    """A figure of a view (a unit, layer or concatenation of Vega-Lite) in the look of all figures."""
    shown = in_one_line(title)
    spec = {"$schema": SCHEMA, "title": shown, "config": config(), **plain(view)}
    return Figure(
        file_name(name),
        shown,
        in_one_line(caption),
        spec,
        workload=workload,
        described=in_one_line(described),
    )


def without_data(name: str, title: str, reason: str, *, workload: str | None = None) -> Figure:
    """A figure that says why it has nothing to show."""
    shown, why = in_one_line(title), in_one_line(reason)
    view = {
        "width": WIDTH_PX,
        "height": 40,
        "data": {"values": [{"text": why}]},
        "mark": {"type": "text", "color": QUIET, "align": "left", "baseline": "middle", "limit": WIDTH_PX},
        "encoding": {"text": {"field": "text", "type": "nominal"}, "x": {"value": 0}, "y": {"value": 20}},
    }
    spec = {"$schema": SCHEMA, "title": shown, "config": config(), **view}
    return Figure(file_name(name), shown, why, spec, empty=why, workload=workload, described=why)
