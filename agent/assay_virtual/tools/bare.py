"""``assay-virtual WORKLOAD.toml``: run a workload on the virtual GPU without a profiler."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from assay_sampling.errors import AssayError
from assay_virtual.tools.environment import virtual_environment
from assay_virtual.tools.program import NotExecutableError, find_program
from assay_virtual.tools.trouble import hang

_USAGE = 2


def main() -> int:
    """Run with the process's own arguments and environment; returns the exit status."""
    return run_bare(sys.argv[1:], os.environ, sys.stdout, sys.stderr)


def run_bare(arguments: Sequence[str], variables: Mapping[str, str], output: TextIO, errors: TextIO) -> int:
    """Print how many launches each process makes; a fault switch may end this process by a signal."""
    workloads = [argument for argument in arguments if argument.endswith(".toml")]
    if not workloads:
        errors.write("usage: assay-virtual WORKLOAD.toml [arguments of the workload]\n")
        return _USAGE
    try:
        environment = virtual_environment(variables)
        program = find_program(arguments, environment)
    except NotExecutableError as error:
        errors.write(f"assay-virtual: {error}: there is no such file\n")
        return _USAGE
    except AssayError as error:
        errors.write(f"assay-virtual: {error}\n")
        return _USAGE
    if "hang" in environment.faults:
        hang(stubborn=environment.faults.argument("hang") == "stubborn")
    program.write_output(output, errors)
    if program.ending.signal:
        signal.signal(
            program.ending.signal, signal.SIG_DFL
        ) if program.ending.signal != signal.SIGKILL else None
        os.kill(os.getpid(), program.ending.signal)
    return program.ending.exit_code


if __name__ == "__main__":
    sys.exit(main())
