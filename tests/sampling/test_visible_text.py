"""Foreign text is shown so that nothing in it turns, hides or steers what is around it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.visible import visible, visible_json
from tests.support.turning_text import TURNED, TURNING, hidden_in


def test_each_hidden_character_is_shown_by_its_number() -> None:
    assert visible("a\u202eb") == "a<U+202E>b"
    assert visible("\x00\x1b[31m\r\x7f\x9b") == "<U+0000><U+001B>[31m<U+000D><U+007F><U+009B>"
    assert visible("\udcff\U000e0041\ufffe\ue000") == "<U+DCFF><U+E0041><U+FFFE><U+E000>"
    assert visible("line\n\ttab") == "line\n\ttab"
    # Scripts that are written from the right, their joiners, joined emoji, and a blank that is no space.
    plain = "Größe 測定 \U0001f468\u200d\U0001f469 \u0645\u06cc\u200c\u062e\u0648\u0627 \u05e9\u05dc\u00a0x"
    assert visible(plain) == plain


def test_names_that_differ_by_a_direction_character_differ_to_the_eye() -> None:
    shown = {visible(f"gemm{each}") for each in ("", *TURNING)}
    assert len(shown) == len(TURNING) + 1


@given(st.text())
def test_nothing_hidden_stays_and_plain_text_stays_as_it_is(text: str) -> None:
    shown = visible(text)
    assert not hidden_in(shown)
    shown.encode()
    if text.isprintable():
        assert shown == text
    assert visible(shown) == shown


@given(st.text() | st.just(TURNED))
def test_json_keeps_its_meaning(text: str) -> None:
    document = json.dumps({text: [text, 1.5]}, ensure_ascii=False)
    shown = visible_json(document)
    assert json.loads(shown) == {text: [text, 1.5]}
    assert not set(TURNING) & set(shown)
