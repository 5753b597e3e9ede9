"""Tests run on several workers; those of a group, which share what is costly to make, on one."""

from __future__ import annotations

import os

import pytest


@pytest.mark.xdist_group("together")
@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="one process runs all tests")
def test_the_tests_of_a_group_keep_together(request: pytest.FixtureRequest) -> None:
    """pytest-xdist tells groups by a suffix of the test's id; without it, each worker makes all anew."""
    assert request.node.nodeid.endswith("@together")
