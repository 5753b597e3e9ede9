"""Figures made from small inputs, and readings of their data and pictures, for tests."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any
from xml.etree import ElementTree

from assay_report.figures import forms
from assay_report.figures.figure import Figure

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "void f<script>alert('x')</script>(int*, char const&) ]]> \"q\" \\ {{x}} \x00\n\u2028 end"
COMPOSITION: dict[str, Any] = {
    "kernels": [HOSTILE, "gemm"], "other_kernels": 3, "groups_together": 7,
    "groups": [
        {"id": 0, "launches": 900, "launches_percent": [60.0, 30.0, 0.0], "cost_percent": [10.0, 5.0, 0.0]},
        {"id": 1, "launches": 50, "launches_percent": [0.0, 0.0, 5.0], "cost_percent": [0.0, 40.0, 40.0]},
        {"id": None, "launches": 50, "launches_percent": [0.0, 5.0, 0.0], "cost_percent": [0.0, 5.0, 0.0]},
    ],
}  # fmt: skip
BY_LAUNCH: dict[str, Any] = {
    "quantity": "duration_ns", "unit": "ns", "launches": 1000, "bin_starts": [0, 250, 500, 750],
    "least": [10.0, 20.0, None, 10.0], "mean": [15.0, 30.0, None, 500.0], "most": [20.0, 40.0, None, 1000.0],
    "process_starts": [500], "representatives": 5,
    "marks": {"row": [0, 900], "group": [0, 1], "value": [10.0, 1000.0]},
}  # fmt: skip
LANES: dict[str, Any] = {
    "groups": [1, 0, None], "kernels": ["gemm", HOSTILE, "copy"], "bin_starts": [0, 500],
    "cost_percent": [[50.0, 50.0], [40.0, 25.5], [10.0, None]],
}  # fmt: skip


def drawn_part(condition: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """The part ``drawn`` of a report for one selection."""
    return copy.deepcopy(
        {
            "level": "light", "condition": dict(condition), "synthetic": True,
            "cost": {"quantity": "duration_ns", "unit": "ns"},
            "composition": COMPOSITION, "by_launch": BY_LAUNCH, "lanes": LANES, **changes,
        }
    )  # fmt: skip


def data_rows(view: Any) -> list[dict[str, Any]]:
    """All rows of data inside a specification, in its order."""
    return [row for values in _values(view) for row in values]


def _values(view: Any) -> Iterator[list[dict[str, Any]]]:
    if isinstance(view, Mapping):
        for key, value in view.items():
            if key == "data" and isinstance(value, Mapping):
                yield value["values"]
            else:
                yield from _values(value)
    elif isinstance(view, list):
        for each in view:
            yield from _values(each)


def picture(figure: Figure) -> ElementTree.Element:
    """The figure's SVG, parsed."""
    return ElementTree.fromstring(forms.svg(figure))


def texts(figure: Figure) -> list[str]:
    """The texts that a reader of the picture sees."""
    return [element.text or "" for element in picture(figure).iter(f"{SVG}text")]


def hints(figure: Figure) -> list[str]:
    """The tooltips of the picture's marks."""
    titles = [element.text or "" for element in picture(figure).iter(f"{SVG}title")]
    return titles[1:]  # the first is the picture's own
