"""Sections of ``make bench-scale`` are found, and sizes are shared out."""

import inspect

import pytest

from tests.bench.scale.sections import SECTIONS, ScaleSize, page_of


@pytest.mark.parametrize("name", SECTIONS)
def test_each_section_has_a_function_that_gives_lines(name: str) -> None:
    assert inspect.isgeneratorfunction(page_of(name))


def test_a_share_of_a_size_is_never_less_than_asked() -> None:
    assert ScaleSize(share=0.1).of(1_000) == 100
    assert ScaleSize(share=0.001).of(1_000, at_least=20) == 20
