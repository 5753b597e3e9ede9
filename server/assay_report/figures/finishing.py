"""Vega's SVG made ready for a page: accessible, light and dark, with ids of its own, the same every time."""

from __future__ import annotations

import hashlib
import re
from xml.etree import ElementTree

from assay_report.figures.theme import CLASS, style

_SVG = "http://www.w3.org/2000/svg"
_REFERENCE = re.compile(r"^url\(#(.+)\)$")
_LONG = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")
_PLACES = ("d", "transform", "x", "y", "x2", "y2", "width", "height")
_MARKS = frozenset({"path", "rect", "line", "text", "circle"})


def finished(drawn: str, title: str, described: str, identity: bytes, *, styled: bool = True) -> str:
    """The SVG of Vega with a title, a description and tooltips that need no script.

    Vega numbers clip paths through a process, so two pictures of a page would share ids and no two drawings
    would be equal: ids become numbers within the picture behind a hash of ``identity``. ``styled`` puts the
    style sheet for dark pages inside.
    """
    root = ElementTree.fromstring(drawn)
    _own_ids(root, "f" + hashlib.sha256(identity).hexdigest()[:10])
    parents = [element for element in root.iter() if len(element)]
    for parent in parents:
        for child in list(parent):
            if _is_invisible(child):
                parent.remove(child)
    for element in root.iter():
        _with_tooltip(element)
        for name in _PLACES:
            if name in element.attrib:
                element.set(name, _LONG.sub(_short, element.attrib[name]))
    root.set("role", "img")
    root.set("class", CLASS)
    head = [_element("title", title), _element("desc", described or title)]
    if styled:
        used = {each.get(what, "") for each in root.iter() for what in ("fill", "stroke")}
        head.append(_element("style", style(used)))
    for place, element in enumerate(head):
        root.insert(place, element)
    ElementTree.register_namespace("", _SVG)
    return ElementTree.tostring(root, encoding="unicode")


def height_of(drawn: str) -> float:
    """The height of an SVG, in px."""
    return float(ElementTree.fromstring(drawn).attrib["height"])


def width_of(drawn: str) -> float:
    """The width of an SVG of Vega, in px."""
    return float(ElementTree.fromstring(drawn).attrib["width"])


def at_most(drawn: str, width_px: float) -> str:
    """An SVG of Vega, scaled down to ``width_px`` if it is wider."""
    root = ElementTree.fromstring(drawn)
    factor = min(1.0, width_px / float(root.attrib["width"]))
    for name in ("width", "height"):
        root.set(name, f"{float(root.attrib[name]) * factor:.2f}")
    ElementTree.register_namespace("", _SVG)
    return ElementTree.tostring(root, encoding="unicode")


def _element(name: str, text: str) -> ElementTree.Element:
    element = ElementTree.Element(f"{{{_SVG}}}{name}")
    element.text = text
    return element


def _own_ids(root: ElementTree.Element, prefix: str) -> None:
    elements = [element for element in root.iter() if "id" in element.attrib]
    renamed = {element.attrib["id"]: f"{prefix}-{number}" for number, element in enumerate(elements)}
    for element in elements:
        element.set("id", renamed[element.attrib["id"]])
    for element in root.iter():
        for name, value in element.attrib.items():
            reference = _REFERENCE.match(value)
            if reference and name != "aria-label":
                element.set(name, f"url(#{renamed[reference[1]]})")


def _short(match: re.Match[str]) -> str:
    """A hundredth of a px is more than anybody sees, and a third of the bytes."""
    text = f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _is_invisible(element: ElementTree.Element) -> bool:
    """A ground or a border that Vega writes for every group, though it paints nothing."""
    if element.tag != f"{{{_SVG}}}path" or element.get("class") not in ("background", "foreground"):
        return False
    return "fill" not in element.attrib and "stroke" not in element.attrib


def _with_tooltip(element: ElementTree.Element) -> None:
    """Turn the description of a mark into its tooltip; a picture has one role, so the others go."""
    text = element.attrib.pop("aria-label", None)
    role = element.attrib.pop("role", None)
    for name in ("aria-roledescription", "aria-hidden", "pointer-events"):
        element.attrib.pop(name, None)
    leaf = element.tag.rpartition("}")[2] in _MARKS
    if text and leaf and role == "graphics-symbol":
        element.insert(0, _element("title", text))
