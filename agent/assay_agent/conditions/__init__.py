"""Conditions of a run on a real GPU: a share of the SMs, locked clocks, no strangers; always undone.

Each change is journalled before it is made (:mod:`assay_agent.conditions.journal`), so that the next start
of the agent undoes what a killed one left (:mod:`assay_agent.conditions.leftovers`). The stand-ins
of modelled GPUs obey their environment.
"""

from assay_agent.conditions.around import Conditions, under_mps
from assay_agent.conditions.base import Condition, Site
from assay_agent.conditions.leftovers import undo_leftovers
from assay_agent.conditions.sm_partition import makes_partitions

__all__ = ["Condition", "Conditions", "Site", "makes_partitions", "under_mps", "undo_leftovers"]
