"""Kernel names as NVIDIA's tools write them: real pairs of a recording, and what the ABI says."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay_agent.tracer.demangle import demangled


@pytest.mark.shared_data
def test_every_name_of_a_real_recording_is_written_as_nsight_systems_wrote_it(shared_data: Path) -> None:
    path = shared_data / "nsys" / "a100_nerf_1106_kernels.sqlite"
    query = (
        "SELECT DISTINCT m.value, d.value FROM CUPTI_ACTIVITY_KIND_KERNEL AS k "
        "JOIN StringIds AS m ON m.id = k.mangledName JOIN StringIds AS d ON d.id = k.demangledName"
    )
    connection = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    try:
        pairs = connection.execute(query).fetchall()
    finally:
        connection.close()
    assert len(pairs) == 116
    # That release left names of anonymous namespaces mangled.
    left_mangled = [mangled for mangled, name in pairs if name.startswith("_Z")]
    assert len(left_mangled) == 3 and all("_GLOBAL__N_" in mangled for mangled in left_mangled)
    wrong = {m: demangled(m) for m, name in pairs if not name.startswith("_Z") and demangled(m) != name}
    assert wrong == {}


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("plain_c_name", "plain_c_name"),
        ("_Z5saxpyifPfS_", "saxpy(int, float, float *, float *)"),
        ("_Z4nonev", "none()"),
        ("_Z1fIfLi4ELb1EEvPT_", "void f<float, (int)4, (bool)1>(T1 *)"),
        ("_Z1fILin3EEvv", "void f<(int)-3>()"),
        ("_Z1fILN2ns4EnumE2EEvv", "void f<(ns::Enum)2>()"),
        ("_ZN2ns12_GLOBAL__N_11gEPKfRi", "ns::<unnamed>::g(const float *, int &)"),
        ("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEENS_6detail5ArrayIPcLi1EEEEEviT0_T1_",
         "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<float>, "
         "at::detail::Array<char *, (int)1>>(int, T2, T3)"),
        ("_Z1kIZZN2ns4copyERNS0_1TEENKUlvE1_clEvEUlfE_EvT_",
         "void k<ns::copy(ns::T &)::[lambda() (instance 3)]::operator ()() const::"
         "[lambda(float) (instance 1)]>(T1)"),
        ("_Z1fIJifEEvDpT_", "void f<int, float>(T1...)"),
        ("_Z1fPFivE", "f(int (*)())"),
        ("_Z1fRA4_f", "f(float (&)[4])"),
        ("_ZNSt6vectorIiSaIiEE4pushEv", "std::vector<int, std::allocator<int>>::push()"),
    ],
)  # fmt: skip
def test_names_follow_the_abi_in_nvidias_spelling(symbol: str, name: str) -> None:
    assert demangled(symbol) == name


@pytest.mark.parametrize(
    "symbol", ["_Z", "_Zbroken", "_Z6short", "_Z1fM1Af", "_Z1fIXaaLb1ELb0EEEvv", "_Z1fS5_"]
)
def test_what_is_not_read_is_none(symbol: str) -> None:
    assert demangled(symbol) is None


@given(st.text("_ZNSTLIEKPRFXUlvifj0123456789abc", max_size=60))
def test_no_text_makes_it_fail(text: str) -> None:
    demangled("_Z" + text)
