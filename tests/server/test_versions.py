"""Versions in reports: of what is installed, and of a checkout that is not."""

from __future__ import annotations

from importlib import metadata

import pytest

from assay_sampling.errors import MissingExtraError
from assay_server.analysis.pipeline import versions


def lacks(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    found = metadata.version

    def version(name: str) -> str:
        if name == missing:
            raise metadata.PackageNotFoundError(name)
        return found(name)

    monkeypatch.setattr(metadata, "version", version)


def test_a_checkout_that_was_never_installed_still_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    lacks(monkeypatch, "assay-gpu")
    assert versions() == {**versions(), "assay": "checkout", "numpy": metadata.version("numpy")}


def test_without_what_computes_the_numbers_there_is_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    lacks(monkeypatch, "scikit-learn")
    with pytest.raises(MissingExtraError):
        versions()
