"""Columns as NumPy arrays and back, without pandas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.arrays import distinct, identifiers_from, texts_from
from tests.support.server.made_segments import made_segments


@given(st.lists(st.text(st.characters(codec="utf-8"))), st.lists(st.integers(0, 2**64 - 1)))
def test_columns_of_texts_and_identifiers(texts: list[str], identifiers: list[int]) -> None:
    assert texts_from(texts).equals(pa.array(texts, pa.large_string()))
    assert identifiers_from(identifiers).equals(pa.array(identifiers, pa.uint64()))
    assert distinct(np.array(identifiers, np.uint64)).tolist() == sorted(set(identifiers))


def test_segments_are_checked_without_pandas_and_masked_arrays() -> None:
    """They would cost a server its first second of ingest, and 40 MiB."""
    [segment] = made_segments((9,))
    program = (
        "import sys\n"
        "from assay_server.campaigns.ingest.content import LaunchOrdinals\n"
        "from assay_server.store.segments import check_named, decode_segment\n"
        "names, launches = (bytes.fromhex(line) for line in sys.stdin)\n"
        "content = decode_segment(names, launches, 'it')\n"
        "check_named(content, (), 'it')\n"
        "LaunchOrdinals(may_skip=False).add(content.batches, 'it')\n"
        "print(content.launches, *({'pandas', 'numpy.ma'} & sys.modules.keys()))\n"
    )
    sent = f"{segment.names.hex()}\n{segment.data.hex()}\n"
    done = subprocess.run(
        [sys.executable, "-c", program], input=sent, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "9"), done.stderr
