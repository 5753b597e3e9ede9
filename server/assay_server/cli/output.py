"""What verbs share: documents as JSON or as text, and which extra of the installation is missing."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from assay_sampling.errors import MissingExtraError

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def show(document: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print one JSON document, or its text for people."""
    typer.echo(json.dumps(document) if as_json else text)


@contextlib.contextmanager
def server_extra() -> Iterator[None]:
    """Turn a missing module of others in the block into MissingExtraError."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("assay_"):
            raise
        raise MissingExtraError("assay-server", error.name or "?", "server") from None
