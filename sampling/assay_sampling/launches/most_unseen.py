"""The share of unseen light time that is accepted unless the user says otherwise.

Apart from what computes it, so that reading a campaign file loads no tables of launches.
"""

from __future__ import annotations

# In percent. Above it a window is noted as too short; docs/methods/two-level.md says how it was chosen.
MOST_UNSEEN_TIME_PERCENT = 1.0
