"""Selections of any shape, for properties: hostile names, extreme weights, groups without launches."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from assay_sampling.scoring.saved_selection import SavedSelection

# As in the header of a trace: one line, no blanks around it.
LINE_NAMES = st.text(
    st.characters(blacklist_categories=("Cs", "Cc", "Zl", "Zp", "Zs")), min_size=1, max_size=12
)
ANY_NAMES = st.text(max_size=12)
WEIGHTS = st.floats(min_value=0, max_value=1e300, allow_nan=False, allow_infinity=False)
_SHAPE = st.lists(st.integers(1, 2**31), min_size=3, max_size=3)
# At most as many threads as GPUs take: traces of MacSim have a line for each warp.
_BLOCK = st.lists(st.integers(1, 10), min_size=3, max_size=3)


@st.composite
def selection_documents(draw: st.DrawFn, names: st.SearchStrategy[str] = ANY_NAMES) -> dict[str, Any]:
    """The document of a selection of up to eight launches of one process, the last no representative."""
    launches = draw(st.integers(2, 8))
    chosen = draw(st.lists(st.integers(0, launches - 2), min_size=1, max_size=launches, unique=True))
    by_light_time = draw(st.booleans())
    groups: list[dict[str, Any]] = []
    for number, launch in enumerate(chosen):
        if groups and draw(st.booleans()):
            group = groups[-1]
        else:
            group = {"id": len(groups), "launches": 1, "representatives": []}
            groups.append(group)
        group["representatives"].append(
            {"process": 0, "launch": launch, "sim_id": launch + 1, "kernel": draw(names),
             "grid": draw(_SHAPE), "block": draw(_BLOCK), "weight": draw(WEIGHTS),
             "light_time_weight": draw(WEIGHTS) if by_light_time else None}
        )  # fmt: skip
        group["launches"] = launches if number == 0 else 1
    if draw(st.booleans()):
        groups.append({"id": len(groups), "launches": 0, "representatives": []})
    sequence = {"exact": "a", "name_block": "b", "exact_totals": "c", "name_block_totals": "d"}
    profile = {"launches": launches, "kernels": 1, "devices": ["V100"], "sources": ["a.csv"],
               "synthetic": False, "sequence": sequence}  # fmt: skip
    return {"version": 1, "method": draw(ANY_NAMES), "parameters": {"k": 1}, "seed": 0, "profile": profile,
            "weights": {"here": "launches", "elsewhere": "light_time" if by_light_time else "launches"},
            "groups": groups}  # fmt: skip


def saved_selections(names: st.SearchStrategy[str] = ANY_NAMES) -> st.SearchStrategy[SavedSelection]:
    """The same, read."""
    return selection_documents(names).map(lambda document: SavedSelection.read(document, "made"))
