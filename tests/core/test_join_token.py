"""Join tokens: they come back as they were given, and every damaged one is refused without being quoted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_core.identity.join_token import PREFIX, JoinToken, secret_hash
from assay_sampling.errors import ParameterError
from tests.support.identity.authorities import made_authority

AUTHORITY = made_authority()
TOKEN = JoinToken(bytes(range(32)), AUTHORITY.der)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


@given(secret=st.binary(min_size=32, max_size=32), around=st.sampled_from(["", " ", "\n"]))
def test_a_token_comes_back_as_it_was(secret: bytes, around: str) -> None:
    token = JoinToken(secret, AUTHORITY.der)
    read = JoinToken.parse(around + token.text + around)
    assert (read.secret, read.authority) == (secret, AUTHORITY.der)
    assert read.fingerprint == AUTHORITY.fingerprint
    assert read.authority_pem == AUTHORITY.pem
    assert read.secret_hash == secret_hash(secret) != secret.hex()


@given(place=st.integers(0, len(TOKEN.text) - 1), character=st.sampled_from(ALPHABET + ".= \n%ä"))
def test_a_token_with_one_character_changed_is_refused(place: int, character: str) -> None:
    text = TOKEN.text[:place] + character + TOKEN.text[place + 1 :]
    if text.strip() == TOKEN.text:
        return
    with pytest.raises(ParameterError):
        JoinToken.parse(text)


@given(place=st.integers(0, len(TOKEN.text) - 1))
def test_a_token_that_lacks_a_character_is_refused(place: int) -> None:
    with pytest.raises(ParameterError):
        JoinToken.parse(TOKEN.text[:place] + TOKEN.text[place + 1 :])


@given(text=st.text(max_size=60) | st.text(ALPHABET, max_size=600).map(lambda text: PREFIX + text))
def test_anything_else_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(ParameterError) as caught:
        JoinToken.parse(text)
    assert len(text) < 20 or text not in str(caught.value)


def test_a_token_shows_its_secret_to_nobody_who_prints_it() -> None:
    assert str(TOKEN.secret) not in repr(TOKEN)
    assert TOKEN.text not in repr(TOKEN)


def test_two_new_tokens_have_different_secrets_of_256_bits() -> None:
    first, second = JoinToken.new(AUTHORITY.der), JoinToken.new(AUTHORITY.der)
    assert len(first.secret) == 32
    assert first.secret != second.secret
