"""The stand-in for Nsight Compute: ``python -m assay_agent.virtual.tools.ncu [options] WORKLOAD.toml``.

The environment says which GPU it has, which version it pretends to be and what goes wrong
(:mod:`assay_agent.virtual.tools.environment`). Everything it measures is synthetic.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from assay_agent.virtual.tools.container import ContainerError, read_container
from assay_agent.virtual.tools.environment import ncu_version, virtual_environment
from assay_agent.virtual.tools.ncu_log import Log, open_log
from assay_agent.virtual.tools.ncu_metrics import metric_listing_text, virtual_chips
from assay_agent.virtual.tools.ncu_options import ncu_help, ncu_options
from assay_agent.virtual.tools.ncu_page import raw_page_csv, raw_page_text
from assay_agent.virtual.tools.ncu_profile import NCU_MAGIC, ProfileRun, page_style
from assay_agent.virtual.tools.ncu_results import Results
from assay_agent.virtual.tools.options import CommandLine, UsageError, parse_command_line
from assay_sampling.errors import AssayError


def main() -> int:
    """Run with the process's own arguments and environment; returns the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    return run_ncu(sys.argv[1:], os.environ, sys.stdout, sys.stderr)


def run_ncu(arguments: Sequence[str], variables: Mapping[str, str], output: TextIO, errors: TextIO) -> int:
    """Behave as ``ncu ARGUMENTS``; errors go to ``output``, as the real tool has it."""
    log = Log(output)
    try:
        version = ncu_version(variables)
        command = parse_command_line(ncu_options(version), arguments)
    except UsageError as error:
        log.error(f"{error}. Use --help for further details.")
        return 1
    except AssayError as error:
        log.error(str(error))
        return 1
    try:
        channel = open_log(command.text("log-file"), output, errors)
    except OSError:
        log.error(f"'{command.text('log-file')}' cannot be used as the output log file")
        return 1
    try:
        log = Log(channel, quiet="quiet" in command)
        return _run(command, version, variables, log, output, errors)
    except (AssayError, UsageError) as error:
        log.error(str(error))
        return 1
    finally:
        if channel not in (output, errors):
            channel.close()


def _run(
    command: CommandLine,
    version: str,
    variables: Mapping[str, str],
    log: Log,
    output: TextIO,
    errors: TextIO,
) -> int:
    if "version" in command:
        log.write(_version_text(version))
        return 0
    if "list-chips" in command:
        log.write(", ".join(virtual_chips()) + "\n")
        return 0
    if "query-metrics" in command or "query-metrics-mode" in command:
        return _query_metrics(command, version, variables, log)
    if "import" in command:
        return _import(command, version, log)
    if "help" in command or not (command.given or command.program):
        log.write(ncu_help(version))
        return 0
    if not command.program:
        if command.text("clock-control") == "reset":
            return 0
        log.error("Missing executable to launch.")
        return 1
    run = ProfileRun(
        command,
        virtual_environment(variables),
        version=version,
        variables=variables,
        log=log,
        output=output,
        errors=errors,
    )
    return run.run()


def _version_text(version: str) -> str:
    return (
        "NVIDIA (R) Nsight Compute Command Line Profiler\n"
        "Stand-in of assay virtual: everything it measures is synthetic\n"
        f"Version {version} (build 0) (assay virtual)\n"
    )


def _query_metrics(command: CommandLine, version: str, variables: Mapping[str, str], log: Log) -> int:
    chips = [chip for chip in command.text("chips").split(",") if chip]
    unknown = [chip for chip in chips if chip not in virtual_chips()]
    if unknown:
        log.error(f"Invalid chip {unknown[0]}")
        return 1
    chips = chips or [virtual_environment(variables).gpu.architecture.chip]
    mode = command.text("query-metrics-mode")
    log.write(metric_listing_text(chips, version, mode, as_csv="csv" in command))
    return 0


def _import(command: CommandLine, version: str, log: Log) -> int:
    name = command.text("import")
    path = Path(name if Path(name).exists() or "." in Path(name).name else f"{name}.ncu-rep")
    try:
        document, table = read_container(path, NCU_MAGIC)
    except OSError:
        log.error(f"Could not open report file '{name}'.")
        return 1
    except ContainerError:
        log.error(f"Failed to load report file '{name}'.")
        return 1
    results = Results.of(document, table)
    metrics = tuple(m for text in command.given.get("metrics", ()) for m in text.split(",") if m)
    style = page_style(command, version, metrics=metrics)
    if "csv" in command:
        log.write(raw_page_csv(results, style))
    else:
        log.write("".join(f"{line}\n" for line in raw_page_text(results, style)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
