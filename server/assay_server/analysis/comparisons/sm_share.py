"""SM shares: how much longer a workload takes on some of the SMs, measured and as its selections predict.

    speedup_true      = sum duration_ns at the share / sum at all SMs, over matched launches
    speedup_predicted = the same for sum weight x duration_ns of the representatives

Both runs are under the same kind of MPS daemon; if only the free run at 100 % has data, it is used instead
and flagged. Source: docs/conditions.md, "What is compared".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow.compute as pc

from assay_report.model.compared import Prediction, SmShareEntry
from assay_sampling.launches.alignment import MatchKind
from assay_sampling.launches.in_memory import Launches
from assay_sampling.scoring.by_operation import score_operations
from assay_sampling.scoring.carried import score_on
from assay_sampling.scoring.evaluation import cost_of
from assay_sampling.scoring.two_conditions import effective_sms, ratio_of_totals
from assay_server.analysis import rows
from assay_server.analysis.comparisons.device_runs import DeviceRuns, MadeSelection
from assay_server.analysis.runs.request import RunData

KIND: MatchKind = "name_block"
_QUANTITY = "duration_ns"


def sm_share_entries(device: DeviceRuns, made: Sequence[MadeSelection]) -> Iterator[SmShareEntry]:
    """One entry for each SM share with a light run on a GPU; an AssayError becomes its status."""
    for shares in device.groups("light"):
        condition = shares[0].condition
        if condition.sm_percent is None or condition.sm_percent >= 100:
            continue
        entry = device.entry(
            SmShareEntry,
            condition,
            sm_percent=condition.sm_percent,
            sm_share=condition.sm_share,
            clocks_locked=condition.clock in ("base", "boost"),
        )
        with rows.status_of(entry):
            share, whole = _pair(device, shares)
            _compare(entry, share, whole, device)
            entry.predictions = [_prediction(each, share, whole, entry, device) for each in made]
        yield entry
        device.memory.release()


def _pair(device: DeviceRuns, shares: Sequence[RunData]) -> tuple[RunData, RunData]:
    """A run at the share and the run on all SMs to compare it with, of the same repeat if possible."""
    condition = replace(shares[0].condition, sm_percent=100.0, sm_share="limit")
    under_mps = device.of("light", condition, under_mps=shares[0].under_mps)
    return device.pair(
        shares,
        under_mps or device.of("light", condition),
        "no light run at 100 % has data, so there is nothing to compare with",
        where=f" at {shares[0].condition.sm_percent:g} % of the SMs",
    )


def _compare(entry: SmShareEntry, share: RunData, whole: RunData, device: DeviceRuns) -> None:
    memory = device.memory
    device.rest_on(entry, (share, whole))
    if not (share.under_mps and whole.under_mps):
        detail = "the two runs were not made under the same kind of MPS daemon"
        rows.flag(entry, whole.run_id, "not_under_mps", detail)
    at_share, at_all = memory.launches(share), memory.launches(whole)
    rows.describe_launches(entry, memory.facts(share), share)
    _count_sms(entry, at_share, at_all, float(share.condition.sm_percent or 100.0))
    entry.match = device.match(whole, share, KIND, "SM shares")
    matched = device.matched(whole, share, KIND)
    share_ns = cost_of(at_share, _QUANTITY).values[matched.right_rows]
    all_ns = cost_of(at_all, _QUANTITY).values[matched.left_rows]
    entry.duration_ns, entry.duration_ns_all_sms = float(share_ns.sum()), float(all_ns.sum())
    entry.speedup_true = ratio_of_totals(share_ns, all_ns)


def _count_sms(entry: SmShareEntry, at_share: Launches, at_all: Launches, percent: float) -> None:
    """The SMs that the tool saw at the share if fewer than all; else the number to which MPS rounds."""
    all_sms, seen = _sm_count(at_all), _sm_count(at_share)
    if all_sms is None:
        return
    entry.all_sms = all_sms
    entry.effective_sms = seen if seen is not None and seen < all_sms else effective_sms(all_sms, percent)


def _sm_count(launches: Launches) -> int | None:
    """SMs of the GPUs on which launches ran, if all are known and equal."""
    used = set(pc.unique(launches.table["device"]).to_pylist())
    counts = {device.sm_count for device in launches.metadata.devices if device.index in used}
    [count] = counts if len(counts) == 1 else [None]
    return count or None


def _prediction(
    made: MadeSelection, share: RunData, whole: RunData, entry: SmShareEntry, device: DeviceRuns
) -> Prediction:
    """The ratio that a selection's representatives give; an AssayError becomes its status."""
    prediction = Prediction(method=made.method, selection=made.key)
    with rows.status_of(prediction):
        at_share, at_all = (_projected(made, run, device) for run in (share, whole))
        prediction.speedup_predicted = predicted = at_share[0] / at_all[0]
        if entry.speedup_true is not None:
            prediction.speedup_error_percent = 100.0 * abs(predicted / entry.speedup_true - 1.0)
        prediction.error_percent = at_share[1]
    return prediction


def _projected(made: MadeSelection, run: RunData, device: DeviceRuns) -> tuple[float, float]:
    """The projected total of a run in ns, and its error in percent.

    Another GPU may launch other kernels, so a selection by operation is scored there by operation.
    """
    calls, memory = made.calls, device.memory
    if calls is not None and run.device_kind != made.whole.device_kind:
        scores = score_operations(calls, memory.launches(run), _QUANTITY).scores
        score = scores[made.selection.weights.elsewhere]
        return score.projected, score.error_percent
    evaluation, _ = score_on(
        made.selection,
        memory.launches(run),
        KIND,
        reference=memory.launches(made.whole),
        quantity=_QUANTITY,
        alignments=memory.aligned(made.whole, run),
    )
    return evaluation.projected, evaluation.error_percent
