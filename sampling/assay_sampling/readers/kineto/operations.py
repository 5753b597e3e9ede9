"""The operations of a Kineto trace: its operators and user annotations around each launch's call."""

from __future__ import annotations

import re

import numpy as np

from assay_sampling.readers.kineto.trace import KinetoTrace
from assay_sampling.readers.operation_calls import CallRanges, Calls, LaunchedFrom, calls_of, range_name

# The profiler's own steps enclose everything, and are numbered.
_STEP = re.compile(r"ProfilerStep#?\d+")


def operation_calls(trace: KinetoTrace, launched: LaunchedFrom) -> Calls | None:
    """The operations of the launches; None for a trace without operators and annotations."""
    operators, annotations = trace.operators, trace.annotations
    if not len(operators) and not len(annotations):
        return None
    texts = trace.texts.to_list()
    # A framework's operator and a user's annotation may have one name.
    names = [*(range_name(text, framework=True) for text in texts), *map(range_name, texts)]
    steps = np.array([_STEP.fullmatch(text) is not None for text in texts], bool)
    own = np.flatnonzero(~steps[annotations["name"]])
    ranges = CallRanges(
        thread=np.concatenate([operators["thread"], annotations["thread"][own]]),
        starts=np.concatenate([operators["ts"], annotations["ts"][own]]),
        ends=np.concatenate([operators["end"], annotations["end"][own]]),
        name=np.concatenate([operators["name"], annotations["name"][own] + len(texts)]),
        shapes=np.concatenate([operators["shapes"], np.full(len(own), -1)]),
        names=names,
        texts_of_shapes=trace.shapes.to_list(),
    )
    return calls_of(launched, ranges)
