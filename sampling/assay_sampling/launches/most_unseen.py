"""The share of unseen light time at which slices suffice unless the user says otherwise.

Apart from what computes it, so that reading a campaign file loads no tables of launches.
"""

from __future__ import annotations

# In percent; docs/methods/two-level.md says how it was chosen.
MOST_UNSEEN_TIME_PERCENT = 1.0
