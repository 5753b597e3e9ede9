"""Parameters of methods as they were published, for tests that compare with a paper or its artifact."""

from __future__ import annotations

from typing import Any

# Of PKA and TBPoint: groups of several kernels; of PKA: the first launch of each.
PUBLISHED_PKS: dict[str, Any] = {"mixing": "allowed", "representative": "first"}
PUBLISHED_TBPOINT: dict[str, Any] = {"mixing": "allowed"}
# Those of PKA on a command line.
PUBLISHED_PKS_OPTIONS = ("-p", "mixing=allowed", "-p", "representative=first")
