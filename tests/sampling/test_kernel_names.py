"""Mangled and demangled names of one kernel, as traces and profilers have them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_sampling.simulators.kernel_names import is_mangled, same_kernel

FILL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
    "std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)"
)


@pytest.mark.parametrize(
    ("mangled", "plain", "same"),
    [
        ("_Z6vecaddPKfS0_Pfi", "vecadd(float const*, float const*, float*, int)", True),
        ("_Z6vecaddPKfS0_Pfi", "vecadd", True),
        ("_Z6vecaddPKfS0_Pfi", "vecsub(float const*)", False),
        ("_Z4gemmIfEvPT_i", "void gemm<float>(float*, int)", True),
        ("_ZN2at6native4gemmIfEEvPT_", "void at::native::gemm<float>(float*)", True),
        ("_ZN2at6native4gemmIfEEvPT_", "gemm", True),
        ("_ZN2at6native4gemmIfEEvPT_", "void at::cuda::gemm<float>(float*)", False),
        ("_ZN3FooIfE3barEv", "Foo<float>::bar()", True),
        ("_ZN12_GLOBAL__N_13runEv", "(anonymous namespace)::run()", True),
        ("_ZN12_GLOBAL__N_13runEv", "<unnamed>::run()", True),
        ("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEEEEviT0_", FILL, True),
        ("_ZL6vecaddv", "vecadd()", True),
        ("_Z", "x", False),
        ("a", "b", False),
        ("_Z1av", "_Z1bv", False),
    ],
)
def test_a_mangled_name_is_its_demangled_form(mangled: str, plain: str, same: bool) -> None:
    assert same_kernel(mangled, plain) is same
    assert same_kernel(plain, mangled) is same
    assert is_mangled(mangled) == mangled.startswith("_Z")


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_two_texts_are_compared(one: str, other: str) -> None:
    for left, right in ((one, other), (f"_Z{one}", other), (f"_ZN{one}", other)):
        assert same_kernel(left, right) == same_kernel(right, left)
        assert same_kernel(left, left)
