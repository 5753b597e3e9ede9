"""``assay help VERB``: the help of a verb, as ``assay VERB --help`` shows it."""

from __future__ import annotations

from typing import Annotated

import typer

from assay_client.cli.verb import verb_app

app = verb_app()


@app.command()
def help_(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="VERB...", help="A verb, optionally followed by its own verb or method."),
    ] = None,
) -> None:
    """Show the help of a verb, or list all verbs."""
    root = ctx.find_root()
    root.command.main(args=[*(words or ()), "--help"], prog_name=root.info_name, standalone_mode=False)
