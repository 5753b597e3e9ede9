"""The interactive form: specifications and Vega itself in one page, started when a reader asks for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from assay_report.figures.figure import Figure
from assay_report.figures.theme import CLASS, DARK, GRID, INK, PAPER, STYLE

# Vega's interpreter of expressions needs no `eval`, so a page may forbid it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
_OPTIONS = (
    "{ast:true,renderer:'svg',loader:{load:()=>Promise.reject(new Error('figures load nothing'))},"
    "actions:{export:true,source:false,compiled:false,editor:false}}"
)


def specifications(figures: Sequence[Figure]) -> str:
    """A script element that holds the specifications by the figures' names; it runs nothing."""
    specs = {figure.name: figure.spec for figure in figures if figure.empty is None}
    return f'<script type="application/json" id="assay-figures">{_in_script(specs)}</script>'


def starting_script(bundle: str) -> str:
    """The style and the script elements behind :func:`specifications`: Vega, and buttons that start a figure.

    A figure is started by a button with the attribute ``data-figure`` (the figure's name), which stands next
    to an element with the attribute ``data-drawn`` and that name: the interactive form replaces its content,
    in the reader's colours, and in light ones on paper.
    """
    return f"<style>{STYLE}{_DARK}</style><script>{bundle}</script><script>{_START}</script>"


def page(figure: Figure, picture: str, bundle: str) -> str:
    """One file with the picture and its interactive form, which needs no network."""
    name = escape(figure.name, quote=True)
    button = "" if figure.empty else f'<p><button data-figure="{name}">Make it interactive</button></p>'
    script = "" if figure.empty else specifications([figure]) + starting_script(bundle)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{escape(figure.title)}</title><style>{_STYLE}</style></head><body><main>"
        f'<div class="scroll" data-drawn="{name}">{picture}</div>'
        f"<p>{escape(figure.caption)}</p>{button}</main>{script}</body></html>\n"
    )


def _in_script(value: object) -> str:
    """JSON that cannot end the script element around it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


_STYLE = (
    ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:16px}"
    ".scroll{overflow-x:auto}button{font:inherit}"
)
# What Vega's page part draws around a figure: its ground, the tooltip and the menu.
_DARK = (
    "@media (prefers-color-scheme:dark){@media not print{"
    f"body,.{CLASS} svg.marks,.{CLASS} .vega-actions,.{CLASS} .vega-embed summary"
    f"{{background:{DARK[PAPER]}!important;color:{DARK[INK]}!important;border-color:{DARK[GRID]}!important}}"
    f".{CLASS} .vega-actions a{{color:{DARK[INK]}!important}}"
    f".{CLASS} .vega-actions a:hover{{background:{DARK[GRID]}!important}}"
    f"#vg-tooltip-element{{background:{DARK[PAPER]}!important;color:{DARK[INK]}!important;"
    f"border-color:{DARK[GRID]}!important}}}}}}"
)
_START = f"""
const specs = JSON.parse(document.getElementById('assay-figures').textContent);
for (const button of document.querySelectorAll('button[data-figure]')) {{
  button.addEventListener('click', () => {{
    const name = button.dataset.figure;
    for (const place of document.querySelectorAll('[data-drawn]'))
      if (place.dataset.drawn === name)
        vegaEmbed(place, specs[name], {_OPTIONS}).then(
          () => {{ place.classList.add('{CLASS}'); button.remove(); }},
          error => {{ place.append(String(error)); }});
  }});
}}
"""
