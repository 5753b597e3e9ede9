"""Workers under Dask's nanny keep the memory that they free, as processes of the server do."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import resource
from assay_server.campaigns.analysing.dask_workers import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        bytearray(1 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = faults()
keep_freed_memory()
faults()
print(first, faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
@pytest.mark.parametrize(("chosen", "undone"), [("65536", True), ("65537", False)])
def test_what_the_nanny_sets_is_undone_and_what_a_person_chose_is_not(chosen: str, undone: bool) -> None:
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": chosen}
    said = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, stdout=subprocess.PIPE, check=True
    )
    before, after = map(int, said.stdout.split())
    pages = 50 * (1 << 20) // os.sysconf("SC_PAGE_SIZE")
    assert before > pages // 2
    assert after < pages // 10 if undone else after > pages // 2
