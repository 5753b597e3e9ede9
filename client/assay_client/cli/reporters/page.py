"""Draws a page of the documentation: nothing is cut, code can be copied, links become commands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import ClassVar

from rich import markdown
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.text import Text
from rich.theme import Theme

from assay_client.pages import page_name, pages

_MOST_COLUMNS = 100
_LINK = re.compile(r"\[([^\]\n]+)\]\(([^)\s]+)\)")
_INDENT = 4
# Rich's own paints code on black, on light terminals too.
_THEME = Theme({"markdown.code": "cyan", "markdown.h2": "bold"})


def render_list(listed: Sequence[Mapping[str, str]], console: Console) -> None:
    """Draw the names of all pages under their sections, and what each is about."""
    width = max(len(page["name"]) for page in listed)
    for section, members in groupby(listed, key=lambda page: page["section"]):
        console.print(Text(section, style="bold"), soft_wrap=True)
        for page in members:
            console.print(f"  {page['name']:<{width}}  {_plain(page['about'])}", soft_wrap=True)
        console.print()
    console.print("show one: assay docs PAGE", soft_wrap=True)
    console.print("take a campaign: assay docs rodinia.yaml > mine.yaml", soft_wrap=True)


def render_page(text: str, console: Console) -> None:
    """Draw a page, at most 100 columns wide; links to other pages become the command that shows them."""
    drawn = _Page(_LINK.sub(_named, text), hyperlinks=False)
    if console.color_system is None or console.no_color:
        drawn.mark_code()
    with console.use_theme(_THEME):
        console.print(drawn, width=min(console.width, _MOST_COLUMNS), crop=False)


def _plain(text: str) -> str:
    return _LINK.sub(r"\1", text).replace("`", "")


def _named(link: re.Match[str]) -> str:
    label, target = link[1], link[2]
    if "://" in target:
        return link[0]
    name = page_name(target)
    if name not in pages():
        return label
    command = f"`assay docs {name}`"
    return command if label in (name, f"{name}.md") else f"{label} ({command})"


class _Heading(markdown.Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        heading = self.text.copy()
        heading.justify = "left"
        mark = {"h1": "=", "h2": "-"}.get(self.tag, "")
        yield heading
        if mark:
            yield Text(mark * min(heading.cell_len, options.max_width))


class _Code(markdown.CodeBlock):
    """Unchanged lines: the terminal wraps long ones, so copies are complete."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in str(self.text).rstrip().split("\n"):
            yield Text(f"{' ' * _INDENT}{line}".rstrip(), no_wrap=True, overflow="ignore")


class _Rows(markdown.TableElement):
    """A table drawn row by row, the first cell above the others: sentences are too long for columns."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        heads = self.header.row.cells if self.header is not None and self.header.row is not None else []
        for row in self.body.rows if self.body is not None else []:
            for place, (head, cell) in enumerate(zip(heads, row.cells, strict=False)):
                name, content = head.content.plain, cell.content.copy()
                if place == 0:
                    content.stylize("bold")
                if content.plain:
                    shown = Text(f"{name}: " if name else "") + content
                    yield Padding(shown, (0, 0, 0, _INDENT if place else 0))
        yield Text()


class _Page(markdown.Markdown):
    def mark_code(self) -> None:
        """Keep the backquotes around code if no colour sets it apart from the text."""
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "code_inline":
                    child.content = f"`{child.content}`"

    elements: ClassVar[dict[str, type[markdown.MarkdownElement]]] = {
        **markdown.Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _Rows,
    }
