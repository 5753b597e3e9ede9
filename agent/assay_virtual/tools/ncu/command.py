"""The stand-in for Nsight Compute: ``python -m assay_virtual.tools.ncu.command [options] WORKLOAD.toml``.

The environment says which GPU it has, which version it pretends to be and what goes wrong
(:mod:`assay_virtual.tools.environment`). Everything it measures is synthetic.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from assay_sampling.errors import AssayError
from assay_virtual.tools.container import ContainerError, read_container
from assay_virtual.tools.environment import ncu_version, virtual_environment
from assay_virtual.tools.ncu.config import with_config_file
from assay_virtual.tools.ncu.log import Log, open_log
from assay_virtual.tools.ncu.options import ncu_help, ncu_options, refusal_status
from assay_virtual.tools.ncu.page import print_page
from assay_virtual.tools.ncu.report import NCU_MAGIC, Results
from assay_virtual.tools.options import CommandLine, UsageError, parse_command_line


def main() -> int:
    """Run with the process's own arguments and environment; returns the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    return run_ncu(sys.argv[1:], os.environ, sys.stdout, sys.stderr)


def run_ncu(arguments: Sequence[str], variables: Mapping[str, str], output: TextIO, errors: TextIO) -> int:
    """Behave like ``ncu ARGUMENTS``; errors go to ``output``, as with the real tool."""
    try:
        version = ncu_version(variables)
    except AssayError as error:
        Log(output).error(str(error))
        return 1
    manners = _Manners(version, output, errors)
    try:
        options = ncu_options(version)
        command = with_config_file(parse_command_line(options, arguments), options, variables)
    except UsageError as error:
        return manners.wrong_usage(str(error))
    try:
        channel = open_log(command.text("log-file"), output, errors)
    except OSError:
        return manners.refuse(f"'{command.text('log-file')}' cannot be used as the output log file")
    try:
        log = Log(channel, quiet="quiet" in command)
        return _Session(command, manners, variables, log).run()
    except (AssayError, UsageError) as error:
        log.error(str(error))
        return 1
    finally:
        if channel not in (output, errors):
            channel.close()


@dataclass(frozen=True)
class _Manners:
    """How a version refuses: until 2022 with status 255 on standard error, later with status 1 in its log."""

    version: str
    output: TextIO
    errors: TextIO

    @property
    def refusal(self) -> int:
        return refusal_status(self.version)

    def refuse(self, text: str) -> int:
        if self.refusal == 1:
            Log(self.output).error(text)
        else:
            self.errors.write(f"{text}\n")
        return self.refusal

    def wrong_usage(self, text: str) -> int:
        gap = ". " if self.refusal == 1 else "\n\n"
        return self.refuse(f"{text}{gap}Use --help for further details.")


@dataclass(frozen=True)
class _Session:
    command: CommandLine
    manners: _Manners
    variables: Mapping[str, str]
    log: Log

    @property
    def version(self) -> str:
        return self.manners.version

    def run(self) -> int:
        """Do the first thing that the options ask for."""
        command = self.command
        if {"query-metrics", "query-metrics-mode"} & command.values.keys():
            return self._query_metrics()
        if "import" in command:
            return self._import()
        if command.program:
            return self._profile()
        if text := self._text():
            self.log.write(text)
            return 0
        if command.text("clock-control") == "reset":
            return 0
        self.log.error("Missing executable to launch.")
        return self.manners.refusal

    def _text(self) -> str:
        """Output of options that only print, "" if none is given."""
        if "version" in self.command:
            return _version_text(self.version)
        if "list-chips" in self.command:
            from assay_virtual.tools.ncu.metrics import virtual_chips  # noqa: PLC0415

            return ", ".join(virtual_chips()) + "\n"
        return ncu_help(self.version) if "help" in self.command or not self.command.values else ""

    def _profile(self) -> int:
        # The model takes longer to load than most reports to print.
        from assay_virtual.tools.ncu.profile import ProfileRun  # noqa: PLC0415

        run = ProfileRun(
            self.command,
            virtual_environment(self.variables),
            version=self.version,
            variables=self.variables,
            log=self.log,
            output=self.manners.output,
            errors=self.manners.errors,
        )
        return run.run()

    def _query_metrics(self) -> int:
        from assay_virtual.tools.ncu.metrics import metric_listing_text, virtual_chips  # noqa: PLC0415

        chips = [chip for chip in self.command.text("chips").split(",") if chip]
        unknown = [chip for chip in chips if chip not in virtual_chips()]
        if unknown:
            return self.manners.refuse(f"Invalid chip {unknown[0]}")
        chips = chips or [virtual_environment(self.variables).gpu.architecture.chip]
        mode = self.command.text("query-metrics-mode")
        self.log.write(metric_listing_text(chips, self.version, mode, as_csv="csv" in self.command))
        return 0

    def _import(self) -> int:
        name = self.command.text("import")
        path = Path(name if Path(name).exists() or Path(name).suffix else f"{name}.ncu-rep")
        try:
            document, columns = read_container(path, NCU_MAGIC)
        except OSError:
            self.log.error(f"Could not open report file '{name}'.")
            return 1
        except ContainerError:
            self.log.error(f"Failed to load report file '{name}'.")
            return 1
        results = Results.of(document, columns)
        metrics = tuple(m for text in self.command.values.get("metrics", ()) for m in text.split(",") if m)
        print_page(results, self.command, self.version, self.log, metrics=metrics)
        return 0


def _version_text(version: str) -> str:
    return (
        "NVIDIA (R) Nsight Compute Command Line Profiler\n"
        "Stand-in of assay virtual: everything it measures is synthetic\n"
        f"Version {version} (build 0) (assay virtual)\n"
    )


if __name__ == "__main__":
    sys.exit(main())
