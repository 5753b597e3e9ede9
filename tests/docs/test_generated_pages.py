"""What is generated in the pages is what the code says today."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay_sampling.documents.reference import schema_text
from tests.support.generated_pages import DOCS, PARTS, SCHEMAS, pages, regenerated


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_the_generated_parts_are_up_to_date(path: Path) -> None:
    text = path.read_text()
    assert regenerated(text) == text, "run 'make docs' and commit"


def test_every_part_is_in_a_page() -> None:
    told = "".join(path.read_text() for path in pages())
    assert all(f"<!-- generated: {name} -->" in told for name in PARTS)


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_published_schemas_are_those_of_the_models(name: str) -> None:
    assert (DOCS / "schemas" / name).read_text() == schema_text(SCHEMAS[name]), "run 'make docs' and commit"


def test_every_schema_has_a_file_and_a_page() -> None:
    assert {path.name for path in (DOCS / "schemas").iterdir()} == set(SCHEMAS)
    told = "".join(path.read_text() for path in pages())
    assert all(f"(schemas/{name})" in told for name in SCHEMAS)
