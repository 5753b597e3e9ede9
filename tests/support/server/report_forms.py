"""The forms of a report, drawn from its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay_report import html, markdown
from assay_report.reading import read_report


def render_html(document: Mapping[str, Any]) -> str:
    return html.render_html(read_report(document))


def render_markdown(document: Mapping[str, Any]) -> str:
    return markdown.render_markdown(read_report(document))


def markdown_files(document: Mapping[str, Any]) -> dict[str, str]:
    return markdown.markdown_files(read_report(document))
