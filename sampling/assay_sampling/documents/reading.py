"""Selection documents of this release and of those before it, as the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from assay_sampling.documents.selection import LABELS_VERSION, SELECTION_VERSION, SelectionDocument
from assay_sampling.errors import InputError
from assay_sampling.notes.registry import note_document

WRITE_AGAIN = "write one with: assay select METHOD FILE -o selection.json"


def read_selection(document: object, path: str) -> SelectionDocument:
    """The selection of a document as :func:`json.loads` gives it; ``path`` names it in errors.

    Raises InputError naming the first field that is not as the format says, or the version where a newer
    release wrote it. Selections of earlier releases have no version.
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
        return SelectionDocument.model_validate(_upgraded(document))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        cause = f"it is not a selection: {first['msg']}"
        raise InputError(path, cause, WRITE_AGAIN, field=place or None) from error


def _upgraded(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document as this release would have written it, without labels of a version that it cannot read."""
    found = dict(document)
    labels = found.get("labels")
    if not isinstance(labels, Mapping) or labels.get("version") != LABELS_VERSION:
        found.pop("labels", None)
    profile = found.get("profile")
    if isinstance(profile, Mapping) and isinstance(profile.get("notes"), list):
        notes = [note_document(note) if isinstance(note, str) else note for note in profile["notes"]]
        found["profile"] = {**profile, "notes": notes}
    return found
