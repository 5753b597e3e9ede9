"""The doctor's look at bundles: whether files of submitters can run here, and why not."""

from __future__ import annotations

import os
from pathlib import Path

from assay_agent.doctor.check import Check
from assay_agent.execution.confinement.means import Means, find_means
from assay_agent.policy.file import DEFAULT_POLICY_FILE, read_policy
from assay_agent.policy.gate import means_of
from assay_sampling.errors import AssayError

_NAME = "bundles"
_NEEDED = "see 'assay docs bundles' for what bubblewrap needs, or take [bundles] out of the policy file"


def bundles_check() -> Check:
    """Whether the box's policy lets bundles run, and whether the box can confine them."""
    setting = os.environ.get("ASSAY_AGENT_POLICY")
    path = Path(setting) if setting else DEFAULT_POLICY_FILE
    try:
        allowed = read_policy(path).bundles if setting or path.exists() else None
    except AssayError as error:
        return Check(_NAME, "note", f"the policy file {path} cannot be read: {error.cause}", error.remedy)
    if allowed is None:
        return Check(_NAME, "ok", f"off: no policy file enables them; {_could()}")
    means = means_of(allowed)
    if isinstance(means, Means):
        return Check(_NAME, "ok", f"{path} lets files of submitters run in bubblewrap")
    return Check(_NAME, "missing", f"{path} enables them, but they cannot be confined: {means}", _NEEDED)


def _could() -> str:
    means = find_means()
    return "this box could run them" if isinstance(means, Means) else f"this box could not: {means}"
