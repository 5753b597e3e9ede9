"""``assay docs [PAGE]``: the documentation of the installed release."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from assay_client.cli.options import JsonOption
from assay_client.cli.output import can_draw, console, show, write_json
from assay_client.cli.reporters.page import render_list, render_page
from assay_client.cli.verb import verb_app
from assay_client.pages import find_page, pages

app = verb_app()


@app.command()
def docs(
    name: Annotated[
        str | None,
        typer.Argument(metavar="PAGE", help="A page's name, such as failures; default: list all names."),
    ] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Show a page of the documentation, or list all.

    A terminal shows it formatted; a pipe or file gets the source, Markdown or a campaign file.
    """
    if name is None:
        listed = [
            {"name": p.name, "title": p.title, "section": p.section, "about": p.about}
            for p in pages().values()
        ]
        show({"pages": listed}, as_json, lambda drawn: render_list(listed, drawn))
        return
    page = find_page(name)
    if as_json:
        write_json({"name": page.name, "title": page.title, "text": page.text})
    elif page.path.suffix == ".md" and can_draw(drawn := console()):
        render_page(page.text, drawn)
    else:
        sys.stdout.write(page.text)
