"""Every form of every figure: valid, offline, the same every time, and safe whatever the names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay_report.figures import forms, gallery, parts, theme
from assay_report.figures.figure import Figure, without_data
from assay_report.figures.finishing import width_of
from assay_report.figures.kinds import composition, errors, timeline
from assay_report.figures.text import labels, number, shortened
from assay_report.figures.widths import NARROW_PX, fitted, in_paper_text
from assay_report.model.drawn import Drawn
from assay_report.model.scores import Row
from assay_report.reading import read_report
from assay_sampling.errors import MissingExtraError, ParameterError
from assay_sampling.methods.built_in import BUILT_IN
from tests.support.server.made_figures import HOSTILE, SVG, drawn_part, hints, picture, texts
from tests.support.server.report_forms import markdown_files, render_html, render_markdown

CONDITION = {"cache": "none", "clock": "none", "sm_percent": 100.0}
ALTAIR_SCHEMA = "altair.vegalite.v6.schema.core"


@pytest.fixture
def with_figures(report: dict[str, Any]) -> dict[str, Any]:
    report["drawn"] = {"training/pks": drawn_part(CONDITION)}
    return report


@pytest.fixture
def figures(with_figures: dict[str, Any]) -> tuple[Figure, ...]:
    return gallery.of_report(read_report(with_figures))


def test_the_figures_of_a_report(figures: tuple[Figure, ...]) -> None:
    assert [(figure.name, figure.workload) for figure in figures] == [
        ("overview", None),
        ("error-against-speedup", None),
        ("gpu-to-gpu", None),
        ("training-error", "training"),
        ("training-pks-launches", "training"),
        ("training-pks-groups", "training"),
    ]
    assert all(figure.title.endswith("(synthetic)") and figure.caption for figure in figures)


def test_every_form_of_a_figure_is_what_its_suffix_says(figures: tuple[Figure, ...], tmp_path: Path) -> None:
    begins = {
        ".svg": b"<svg",
        ".png": b"\x89PNG",
        ".pdf": b"%PDF-",
        ".json": b"{",
        ".html": b"<!DOCTYPE html>",
    }
    for suffix, first in begins.items():
        path = tmp_path / f"figure{suffix.upper()}"
        forms.write(figures[4], path)
        assert path.read_bytes().startswith(first)
    assert json.loads((tmp_path / "figure.JSON").read_bytes()) == figures[4].spec
    with pytest.raises(ParameterError) as raised:
        forms.write(figures[0], tmp_path / "figure.jpg")
    assert ".svg, .png, .pdf, .json, .html" in raised.value.remedy


def test_specifications_are_valid_vega_lite(figures: tuple[Figure, ...], report: dict[str, Any]) -> None:
    """Altair checks them against the schema of the language."""
    for figure in figures:
        assert figure.chart().to_dict()["title"] is not None


def test_one_input_gives_the_same_bytes(with_figures: dict[str, Any]) -> None:
    once, again = (gallery.of_report(read_report(with_figures)) for _ in range(2))
    for one, other in zip(once, again, strict=True):
        assert one.spec_bytes() == other.spec_bytes()
        first = forms.svg(one)
        forms.svg.__globals__["_svg"].cache_clear()
        assert first == forms.svg(other)


def strings(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for each in value.values():
            yield from strings(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from strings(each)
    elif isinstance(value, str):
        yield value


def test_no_figure_asks_for_anything_from_outside(figures: tuple[Figure, ...]) -> None:
    for figure in figures:
        found = [text for text in strings(figure.spec) if "://" in text]
        assert found == [figure.spec["$schema"]], "it names the language, and nothing reads it"
        assert not re.search(r"https?://(?!www\.w3\.org)", forms.svg(figure))
    outside = {**figures[0].spec, "data": {"url": "http://127.0.0.1:9/x.json"}}
    with pytest.raises(ValueError, match="not allowed"):
        forms.svg(Figure("x", "x", "x", outside))


def test_texts_of_pictures_are_large_enough_and_colours_follow_the_reader(
    figures: tuple[Figure, ...],
) -> None:
    known = {colour.lower() for colour in (*theme.DARK, theme.INSIDE, theme.AROUND_INSIDE)} | {"none"}
    for figure in figures:
        for element in picture(figure).iter():
            size = element.get("font-size")
            assert size is None or float(size.removesuffix("px")) >= theme.LEAST_TEXT_PX
            for what in ("fill", "stroke"):
                assert element.get(what, "none").lower() in known | {"transparent"}, figure.name


def clipped(value: float) -> Figure:
    """A picture with a clip path and a gradient, which Vega names by numbers that it counts through."""
    filled = {"gradient": "linear", "stops": [{"offset": 0, "color": "white"}, {"offset": 1, "color": "red"}]}
    spec = {
        "data": {"values": [{"x": 0, "y": 1}, {"x": value, "y": 2}]},
        "mark": {"type": "area", "clip": True, "color": filled},
        "encoding": {
            "x": {"field": "x", "type": "quantitative"},
            "y": {"field": "y", "type": "quantitative"},
        },
    }
    return Figure("clipped", "Clipped", "", spec)


def test_two_pictures_of_a_page_share_no_ids_and_each_refers_to_its_own() -> None:
    pictures = [picture(clipped(value)) for value in (10.0, 20.0)]
    ids = [[each.attrib["id"] for each in root.iter() if each.get("id")] for root in pictures]
    assert all(len(found) >= 2 for found in ids), "Vega names what it refers to"
    assert len({*ids[0], *ids[1]}) == len(ids[0]) + len(ids[1])
    for root, own in zip(pictures, ids, strict=True):
        referred = [found[1] for each in root.iter() for value in each.attrib.values()
                    if (found := re.match(r"url\(#(.+)\)", value))]  # fmt: skip
        assert set(referred) == set(own)


def test_drawing_a_picture_again_gives_the_same_ids() -> None:
    first = forms.svg(clipped(10.0))
    forms.svg(clipped(20.0))
    forms.svg.__globals__["_svg"].cache_clear()
    assert forms.svg(clipped(10.0)) == first


def test_no_two_series_look_alike_and_no_mark_is_at_the_end_of_an_axis() -> None:
    names = [f"method {number}" for number in range(24)]
    for encoded, other in ((parts.series(names, "m"), "shape"), (parts.lines(names, "m"), "strokeDash")):
        looks = zip(
            encoded["color"]["scale"]["range"], map(str, encoded[other]["scale"]["range"]), strict=True
        )
        assert len(set(looks)) == len(names)
    assert parts.log_domain([100.0, 100.0]) == (50.0, 200.0)
    assert parts.log_domain([0.001, 3.0], 0.01) == (0.01, 5.0)


def test_a_long_name_does_not_push_the_mark_of_synthetic_data_out_of_a_title() -> None:
    name = "w" * 400
    row = {"workload": name, "device": "V100", "condition": CONDITION, "method": "pks", "status": "ok",
           "error_percent": 1.0, "speedup": 2.0}  # fmt: skip
    figure = errors.of_workload([Row.model_validate(row)], name, " (synthetic)")
    assert any(text.endswith("(synthetic)") and "…" in text for text in texts(figure))


def test_hostile_names_reach_no_form_as_markup(figures: tuple[Figure, ...]) -> None:
    for figure in figures:
        page = forms.html(figure)
        assert "<script>alert" not in page
        assert page.count("</script>") == (0 if figure.empty else 3), "a name ends no script element"
        assert not any(element.tag.endswith("script") for element in picture(figure).iter())
    groups = figures[-1]
    assert any("f<script>alert('x')</script>(int*" in hint for hint in hints(groups))
    assert any("f<script>alert('x')</script>(int*" in text for text in texts(groups))


def said(drawn: str, role: str) -> list[str]:
    """The texts of axes or legends in a picture, each on one line."""
    groups = ElementTree.fromstring(drawn).iterfind(f".//{SVG}g[@class='mark-text role-{role}']")
    return [" ".join(each.itertext()) for group in groups for each in group.iter(f"{SVG}text")]


def marks(drawn: str) -> list[int]:
    """How many bars, points and paths each layer has."""
    groups = ElementTree.fromstring(drawn).iterfind(".//*[@class]")
    return [
        len(each)
        for each in groups
        if re.fullmatch("mark-(symbol|rect|area).*role-mark.*", each.get("class", ""))
    ]


def test_a_phone_sees_all_that_a_desk_sees(figures: tuple[Figure, ...]) -> None:
    for figure in figures:
        broad, narrow = forms.svg(figure), forms.narrow_svg(figure)
        assert width_of(narrow) <= NARROW_PX
        for role in ("axis-title", "legend-title", "legend-label"):
            for short, whole in zip(said(narrow, role), said(broad, role), strict=True):
                assert short == whole or (short[-1] == "…" and whole.startswith(short[:-1])), figure.name
        rows = [text for text in said(broad, "axis-label") if not re.match(r"[\d.,]+$", text)]
        assert set(rows) <= set(said(narrow, "axis-label")), figure.name
        assert marks(narrow) == marks(broad), figure.name


def test_long_names_take_two_lines_on_a_phone_and_empty_figures_say_why() -> None:
    name = f"first/{'x' * 60}/last"
    row = {
        "workload": name, "device": "V100", "condition": {"cache": None}, "method": "pks",
        "asked_parameters": {}, "status": "ok", "error_percent": 1.0, "speedup": 2.0, "reason": "",
    }  # fmt: skip
    rows = [Row.model_validate(row), Row.model_validate({**row, "workload": "other"})]
    (figure,) = errors.of_cells(rows, "", 4)
    drawn = forms.narrow_svg(figure)
    assert width_of(drawn) <= NARROW_PX
    whole = [text.replace(" ", "") for text in said(drawn, "axis-label") if "…" in text]
    assert whole == [shortened(name)] * 2
    why = without_data("empty", "Nothing", "There is nothing to see, for a reason of many words. " * 3)
    words = ElementTree.fromstring(forms.narrow_svg(why)).itertext()
    assert "many words. There is nothing" in " ".join(words) and width_of(forms.narrow_svg(why)) <= NARROW_PX


def test_a_long_name_is_cut_in_the_middle_and_whole_in_its_hint() -> None:
    name = f"void at::native::kernel<{'float, ' * 560}int>(int)"
    part = drawn_part(CONDITION)
    part["composition"]["kernels"] = [name, "gemm"]
    figure = composition.group_composition("g", "Groups", Drawn.model_validate(part).composition, "time")
    (shown,) = (text for text in texts(figure) if "void at::" in text)
    assert len(shown) < 100 and "…" in shown and shown.endswith("int>(int)")
    assert any(name in hint for hint in hints(figure))
    assert float(picture(figure).attrib["width"]) < 900


@settings(max_examples=10, deadline=None)
@given(
    st.text(max_size=60),
    st.text(max_size=60),
    st.floats(0, 1e12),
    st.floats(1e-6, 1e12),
    st.text(max_size=20),
)
def test_pictures_are_well_formed_whatever_the_names(
    device: str, workload: str, error: float, speedup: float, reason: str
) -> None:
    row = {
        "workload": workload, "device": device, "condition": {"cache": None}, "method": workload,
        "asked_parameters": {}, "status": "ok", "reason": reason, "error_percent": error, "speedup": speedup,
    }  # fmt: skip
    refused = {**row, "method": device, "error_percent": None, "speedup": None, "status": "refused"}
    figure = errors.of_workload([Row.model_validate(each) for each in (row, refused)], workload, "")
    assert json.loads(figure.spec_bytes()) == figure.spec
    root = picture(figure)
    assert re.fullmatch(r"[a-z0-9_.-]+", figure.name)
    for element in root.iter():
        for name in ("x", "y", "x2", "y2", "width", "height"):
            assert abs(float(element.attrib.get(name, "0").removesuffix("px"))) < 1e5


@given(st.lists(st.text(max_size=120), max_size=12), st.integers(5, 40))
def test_no_two_names_share_a_label(names: list[str], characters: int) -> None:
    found = labels(names, characters)
    assert list(found) == list(dict.fromkeys(names))
    assert len(set(found.values())) == len(found)
    assert all("\n" not in label and label for label in found.values())


def test_numbers_and_names_for_labels() -> None:
    assert [number(v) for v in (0.0, 0.25, 12.345, 1234.5, 2e9, 1e-5)] == [
        "0", "0.25", "12.3", "1,234", "2e9", "1e-5",
    ]  # fmt: skip
    assert shortened("abcdefghij", 5) == "ab…ij"
    assert shortened("abc", 5) == "abc"


def test_a_page_and_a_markdown_show_the_same_figures(with_figures: dict[str, Any]) -> None:
    files = markdown_files(with_figures)
    text = files.pop("report.md")
    assert re.findall(r"^!\[.*\]\(([^)]+)\)$", text, re.MULTILINE) == list(files)
    assert all(re.fullmatch(r"report-pictures/[a-z0-9_.-]+\.svg", path) for path in files)
    page = render_html(with_figures)
    for drawn in files.values():
        assert drawn in page
        root = ElementTree.fromstring(drawn)
        assert root.attrib["role"] == "img"
        assert (root.findtext(f"{SVG}title") or "").endswith("(synthetic)") and root.findtext(f"{SVG}desc")
    assert "<script" not in page
    assert set(render_markdown(with_figures).splitlines()) <= set(text.splitlines())


def test_names_beside_lanes_move_with_a_narrower_plot(figures: tuple[Figure, ...]) -> None:
    [lanes] = [figure for figure in figures if figure.name == "training-pks-launches"]
    draw = partial(forms.converter().vegalite_to_svg, vl_version=forms.VEGA_LITE)
    wide = width_of(draw(in_paper_text(lanes.spec)))
    narrow = width_of(draw(fitted(lanes.spec, 400, wide)))
    assert wide > 450 and narrow <= 401


def test_a_paper_gets_a_pdf_of_its_width_with_fonts_inside(figures: tuple[Figure, ...]) -> None:
    for width_pt in (240.0, 504.0):
        made = forms.pdf(figures[4], width_pt=width_pt)
        (box,) = re.findall(rb"/MediaBox\s*\[\s*0 0 ([\d.]+)", made)
        assert float(box) <= width_pt + 0.5
        assert b"/FontFile" in made or b"/FontDescriptor" in made


def test_a_figure_too_wide_for_a_column_gets_narrower_plots_and_keeps_its_size_of_text(
    figures: tuple[Figure, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    real = forms.converter()

    def kept(svg: str) -> bytes:
        drawn.append(svg)
        return bytes(real.svg_to_pdf(svg))

    monkeypatch.setattr(
        forms, "converter", lambda: SimpleNamespace(vegalite_to_svg=real.vegalite_to_svg, svg_to_pdf=kept)
    )
    for figure in figures:
        for width_pt in (240.0, 504.0, 3000.0):
            forms.pdf(figure, width_pt=width_pt)
    # Scaling down as a whole changes the size of the picture, but not the coordinates within it.
    own = [float(ElementTree.fromstring(each).attrib["viewBox"].split()[2]) for each in drawn]
    by_figure = list(zip(own[::3], own[1::3], own[2::3], strict=True))
    assert all(column <= page <= full and full > 504.0 for column, page, full in by_figure)
    # Some have nothing that could be narrower.
    assert sum(column < full for column, _, full in by_figure) > len(figures) // 2


def test_without_the_extra_the_remedy_names_it_and_markdown_does_without(
    with_figures: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> None:
        raise MissingExtraError("figures", "vl_convert", "figures")

    monkeypatch.setattr(forms, "converter", absent)
    files = markdown_files(with_figures)
    assert list(files) == ["report.md"]
    assert "figures" in files["report.md"].splitlines()[-1] and "pip install" in files["report.md"]
    page = render_html(with_figures)
    assert "not drawn, because" in page and "pip install" in page and "<svg" not in page


def test_a_report_of_an_earlier_release_has_fewer_figures(report: dict[str, Any]) -> None:
    assert "drawn" not in report
    assert not any("groups" in path for path in markdown_files(report))
    part = drawn_part(CONDITION)
    del part["lanes"]
    assert timeline.timeline("t", "Launches", Drawn.model_validate(part)).empty is None


def test_colours_stay_apart_for_everybody_and_from_the_ground() -> None:
    """Simulated after Machado, Oliveira and Fernandes (2009), Table 1; contrast as WCAG 2.1, 1.4.11 asks."""
    every = (*theme.SERIES, *theme.MORE)
    dark = [theme.DARK[colour] for colour in every]
    for names, paper in ((every, theme.PAPER), (dark, theme.DARK[theme.PAPER])):
        colours = np.array([rgb(found) for found in names])
        ground = rgb(paper)
        for colour in colours:
            lighter, darker = sorted((luminance(colour), luminance(ground)), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= 3
        for seen in (np.eye(3), PROTANOPIA, DEUTERANOPIA):
            places = [lab(linear(colour) @ seen.T) for colour in colours]
            assert least_distance(places[: len(theme.SERIES)]) > 20
            assert least_distance(places) > 14
    assert len(set(theme.MARKS)) == len(set(map(tuple, theme.DASHES))) == len(theme.SERIES)


def least_distance(places: Sequence[np.ndarray]) -> float:
    return min(float(np.linalg.norm(a - b)) for a, b in combinations(places, 2))


def test_no_two_methods_have_one_colour_or_one_mark_in_one_colour() -> None:
    methods = [f"method {number}" for number in range(20)]
    looks = parts.series(methods, "method")
    colours = looks["color"]["scale"]["range"]
    assert looks["color"]["scale"]["domain"] == methods
    assert len(set(colours)) == len(methods) > len(BUILT_IN)


def test_the_hostile_name_is_hostile() -> None:
    assert "\x00" in HOSTILE and "</script>" in HOSTILE


PROTANOPIA = np.array(
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
)
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)


def rgb(colour: str) -> np.ndarray:
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def linear(colour: np.ndarray) -> np.ndarray:
    return np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)


def luminance(colour: np.ndarray) -> float:
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def lab(light: np.ndarray) -> np.ndarray:
    to_xyz = np.array(
        [
            [0.4124564, 0.3575761, 0.1804375],
            [0.2126729, 0.7151522, 0.0721750],
            [0.0193339, 0.1191920, 0.9503041],
        ]
    )
    xyz = to_xyz @ np.clip(light, 0, 1) / [0.95047, 1.0, 1.08883]
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])
