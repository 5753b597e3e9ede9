"""How long a thread of a program waits for the interpreter."""

from __future__ import annotations

import subprocess
import sys


def test_threads_of_a_program_switch_often() -> None:
    code = (
        "import sys; from assay_core.interpreter_lock import switch_threads_often; switch_threads_often(); "
        "print(sys.getswitchinterval())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "0.0005"
