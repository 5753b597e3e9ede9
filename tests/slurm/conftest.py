"""Without ``make slurm-long`` nothing of this folder runs."""

from __future__ import annotations

import os

import pytest

from tests.slurm.one_node import why_not


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all with the reason, unless Slurm was asked for and can be started."""
    why = why_not() if os.environ.get("ASSAY_SLURM") else "make slurm-long has a Slurm"
    for item in items:
        if why and item.path.is_relative_to(os.path.dirname(__file__)):  # noqa: PTH120
            item.add_marker(pytest.mark.skip(reason=why))
