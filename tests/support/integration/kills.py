"""Tests that kill programs at many moments: ``make kills`` takes more moments."""

from __future__ import annotations

import os

MANY_KILLS = os.environ.get("ASSAY_KILLS") == "full"
