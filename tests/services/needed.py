"""Marks of tests that need servers which only some make targets bring."""

from __future__ import annotations

import os

import pytest

from tests.services.postgresql import programs
from tests.services.seaweedfs import program
from tests.services.standby_lab import haproxy

_HERE = bool(os.environ.get("ASSAY_SERVICES"))

needs_seaweedfs = pytest.mark.skipif(
    not _HERE or program() is None, reason="'make services-long' runs it, with SeaweedFS from its package"
)
needs_standby = pytest.mark.skipif(
    not _HERE or programs() is None or haproxy() is None,
    reason="make services-long has a PostgreSQL and HAProxy",
)
