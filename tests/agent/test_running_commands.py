"""Looking at the processes of the machine while some of them end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from tests.support.machine.commands import running_commands


def test_processes_that_end_meanwhile_are_left_out() -> None:
    end = threading.Event()

    def come_and_go() -> None:
        while not end.is_set():
            subprocess.run(["/bin/true"], check=True)

    busy = [threading.Thread(target=come_and_go) for _ in range(4)]
    for each in busy:
        each.start()
    try:
        for _ in range(50):
            assert dict(running_commands())[os.getpid()].startswith(sys.executable.encode()[:1])
    finally:
        end.set()
        for each in busy:
            each.join()
