"""Selection documents as the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from assay_sampling.documents.selection import LABELS_VERSION, SELECTION_VERSION, SelectionDocument
from assay_sampling.errors import InputError

WRITE_AGAIN = "write one with: assay select METHOD FILE -o selection.json"


def read_selection(document: object, path: str) -> SelectionDocument:
    """The selection of a document as :func:`json.loads` gives it; ``path`` names it in errors.

    Raises InputError naming the first field that is not as the format says, or the version if it is
    newer.
    """
    if not isinstance(document, Mapping):
        raise InputError(path, "it is not a selection: it is not a JSON object", WRITE_AGAIN)
    version = document.get("version", 0)
    if isinstance(version, int) and version > SELECTION_VERSION:
        raise InputError(
            path,
            f"its version is {version}, and this release reads versions up to {SELECTION_VERSION}",
            f"use an assay of at least the release that wrote it, or {WRITE_AGAIN}",
        )
    try:
        return SelectionDocument.model_validate(_readable(document))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        cause = f"it is not a selection: {first['msg']}"
        raise InputError(path, cause, WRITE_AGAIN, field=place or None) from error


def _readable(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document without labels of a version that this program cannot read."""
    readable = dict(document)
    labels = readable.get("labels")
    if not isinstance(labels, Mapping) or labels.get("version") != LABELS_VERSION:
        readable.pop("labels", None)
    return readable
