"""Programs load their modules without looking for garbage."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from assay_core.loading import loading


def test_nothing_is_looked_for_while_a_program_loads_and_all_is_as_before_afterwards() -> None:
    assert gc.isenabled()
    with loading():
        assert not gc.isenabled()
        with loading():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_module_that_cannot_be_loaded_leaves_the_looks_on() -> None:
    with pytest.raises(ModuleNotFoundError), loading():
        raise ModuleNotFoundError
    assert gc.isenabled()


def test_looks_after_it_leave_out_what_was_loaded() -> None:
    code = (
        "import gc\n"
        "from assay_core.loading import loading\n"
        "with loading():\n"
        "    loaded = [[] for _ in range(100_000)]\n"
        "print(gc.get_freeze_count() >= 100_000, len(gc.get_objects()) < 10_000)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


def test_the_main_module_of_the_server_loads_nothing_before_it_runs() -> None:
    """Every worker of the analysis imports it again: that took each 0.4 s."""
    heavy = ["typer", "pydantic", "cryptography", "assay_server.cli.program"]
    code = f"import sys, assay_server.main; print(sorted(set({heavy}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
