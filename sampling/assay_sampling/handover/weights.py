"""Target ``weights``: the selection as a weights file (docs/weights-format.md)."""

from __future__ import annotations

from functools import partial

import numpy as np

from assay_sampling.handover.target import HandedFile, HandOver, Inputs, Need
from assay_sampling.handover.weights_file import weights_text
from assay_sampling.scoring.saved_selection import SavedSelection

FILE_NAME = "weights.txt"


def weights_entry(saved: SavedSelection, inputs: Inputs, name: str = FILE_NAME) -> HandedFile:
    """The weights file, which every folder that is handed over has."""
    about = "weight of each representative; Assay reads it back"
    return HandedFile(name, about, partial(weights_text, saved, inputs.made_by))


class WeightsTarget:
    """One weights file. It needs nothing but the selection."""

    name = "weights"
    summary = "a weights file: text in the manner of SimPoint, which Assay reads back"
    needs: frozenset[Need] = frozenset()
    takes: frozenset[Need] = frozenset()
    file_suffix = ".weights.txt"

    def hand_over(self, saved: SavedSelection, inputs: Inputs) -> HandOver:
        """See :class:`assay_sampling.handover.target.Target`."""
        return HandOver((weights_entry(saved, inputs),), np.arange(len(saved.by_launch().launch)))
