"""Tests that kill programs at many moments: minutes long, so they have a target of their own."""

from __future__ import annotations

import os

import pytest

_FORM = os.environ.get("ASSAY_KILLS", "")
MANY_KILLS = _FORM == "full"
# ``make test`` kills at some of the moments at which ``make kills-short`` does.
MORE_THAN_A_FEW = bool(_FORM)
AT_MANY_MOMENTS = pytest.mark.skipif(not _FORM, reason="minutes of kills: 'make kills-short' runs it")
