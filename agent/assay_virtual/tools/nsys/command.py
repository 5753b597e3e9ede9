"""The stand-in for Nsight Systems: ``python -m assay_virtual.tools.nsys.command profile WORKLOAD.toml``.

It has the traps of the real one: exit status 0 if the importer fails (only the raw file is left) and if the
report already exists (the new one gets a temporary name). Everything it measures is synthetic.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from assay_sampling.errors import AssayError
from assay_virtual.tools.container import ContainerError
from assay_virtual.tools.environment import VirtualEnvironment, nsys_version, version_key, virtual_environment
from assay_virtual.tools.nsys.options import (
    EXPORT_TYPES,
    EXPORT_TYPES_2021,
    check_profile_values,
    export_options,
    options_help,
    profile_options,
)
from assay_virtual.tools.nsys.report import Capture
from assay_virtual.tools.options import CommandLine, UsageError, parse_command_line
from assay_virtual.tools.trouble import cut_in_half, hang

if TYPE_CHECKING:
    from assay_virtual.tools.program import Program

_USAGE = {
    "profile": "usage: nsys profile [<args>] [application] [<application args>]",
    "export": "usage: nsys export [<args>] [nsys-rep-file]",
}
_GENERAL = """ usage: nsys [--version] [--help] <command> [<args>] [application] [<application args>]

 Commands of this stand-in of assay virtual:
\tprofile       Run a workload file on a virtual GPU and capture its profile into a nsys-rep file.
\texport        Export nsys-rep file into another format.
"""
_OVERWRITE = "Use `--force-overwrite true` to overwrite existing files."


def main() -> int:
    """Run with the process's own arguments and environment; returns the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    return run_nsys(sys.argv[1:], os.environ, sys.stdout, sys.stderr)


def run_nsys(arguments: Sequence[str], variables: Mapping[str, str], output: TextIO, errors: TextIO) -> int:
    """Behave like ``nsys ARGUMENTS``; the real tool writes errors to ``errors``."""
    tool = _Tool(variables, output, errors)
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    try:
        if command in ("profile", "export"):
            return tool.profile(rest) if command == "profile" else tool.export(rest)
        return tool.general(command)
    except UsageError as error:
        tool.say(f"{error}\n\n{_USAGE[command]}\nTry 'nsys {command} --help' for more information.")
    except AssayError as error:
        tool.say(str(error))
    return 1


@dataclass(frozen=True)
class _Tool:
    variables: Mapping[str, str]
    output: TextIO
    errors: TextIO

    def say(self, text: str) -> None:
        self.errors.write(f"{text}\n")
        self.errors.flush()

    def general(self, command: str) -> int:
        """Version, help, or a complaint."""
        if command in ("--version", "-v"):
            version = nsys_version(self.variables)
            self.output.write(f"NVIDIA Nsight Systems version {version}-assay-virtual\n")
            return 0
        self.output.write(_GENERAL)
        if command in ("--help", "-h"):
            return 0
        if command:
            self.say(f"Unknown command: {command}")
        return 1

    def profile(self, arguments: Sequence[str]) -> int:
        """``nsys profile``: check the options, then run; only the run loads the model."""
        version = nsys_version(self.variables)
        command = parse_command_line(profile_options(version), arguments)
        if "help" in command:
            self.output.write(options_help("profile", profile_options(version)))
            return 0
        check_profile_values(command, version)
        if not command.program:
            raise UsageError(
                "ERROR: The collection must include one or more system-wide settings if an application is "
                "not launched."
            )
        from assay_virtual.tools.program import NotExecutableError, find_program  # noqa: PLC0415

        environment = virtual_environment(self.variables)
        try:
            program = find_program(command.program, environment)
        except NotExecutableError as error:
            old = version_key(version) < (2023, 1)
            missing = "Executable not found in current directory or standard search paths"
            self.say(f"No such file or directory: {error}" if old else missing)
            return 1
        if "hang" in environment.faults:
            hang(stubborn=environment.faults.argument("hang") == "stubborn")
        program.write_output(self.output, self.errors)
        capture = self._capture(command, program, environment, version)
        self._write_report(capture, command, environment)
        if "ended_ns" in capture.document:
            return 128 + signal.SIGTERM  # what --kill says by default
        # A shell's exit status for a signal, unlike Nsight Compute's.
        return 128 + program.ending.signal if program.ending.signal else program.ending.exit_code

    def _capture(
        self, command: CommandLine, program: Program, environment: VirtualEnvironment, version: str
    ) -> Capture:
        from assay_virtual.tools.nsys.capture import capture_run  # noqa: PLC0415

        capture = capture_run(
            program,
            environment,
            traces=tuple(command.text("trace").split(",")),
            pytorch=command.text("pytorch"),
            whole_graphs=command.text("cuda-graph-trace").startswith("graph"),
            variables=self.variables,
            version=version,
            duration_ns=round(float(command.text("duration")) * 1e9) if "duration" in command else None,
        )
        if "report_short" in environment.faults:
            rows = capture.launches.rows
            return Capture(capture.document, capture.launches.head(max(0, rows - max(1, rows // 3))))
        return capture

    def _write_report(self, capture: Capture, command: CommandLine, environment: VirtualEnvironment) -> None:
        """Import the raw file; errors here do not change the exit status."""
        report = _report_path(command, self.variables)
        existing = report.exists() and command.text("force-overwrite") != "true"
        temporary = _temporary_report(self.variables)
        if existing or "output_exists" in environment.faults:
            self.say(f"Failed to create '{report.absolute()}': File exists.\n{_OVERWRITE}")
            report = temporary
        self._print(f"Generating '{temporary.with_suffix('.qdstrm')}'\n")
        if "importer_failed" in environment.faults or "disk_full" in environment.faults:
            why = "No space left on device" if "disk_full" in environment.faults else "Importation failed."
            report.with_suffix(".qdstrm").write_bytes(capture.to_bytes())
            self.say(f"Importer error status: {why}")
            self._print(f"Generated:\n    {report.with_suffix('.qdstrm').absolute()}\n")
            return
        report.write_bytes(capture.to_bytes())
        if "report_truncated" in environment.faults:
            cut_in_half(report)
        self._print(f"[1/1] [{'=' * 24}100%] {report.name}\nGenerated:\n    {report.absolute()}\n")

    def _print(self, text: str) -> None:
        self.output.write(text)
        self.output.flush()

    def export(self, arguments: Sequence[str]) -> int:
        version = nsys_version(self.variables)
        command = parse_command_line(export_options(version), arguments)
        if "help" in command:
            self.output.write(options_help("export", export_options(version)))
            return 0
        kind = command.text("type")
        if not kind:
            raise UsageError("Missing required option '--type'.")
        if kind not in (EXPORT_TYPES if version_key(version) >= (2023, 1) else EXPORT_TYPES_2021):
            raise UsageError(f"Unsupported export type option: '{kind}'.")
        if not command.program:
            raise UsageError("Missing input file.")
        if kind != "sqlite":
            self.say(f"Exportation error: assay virtual exports to sqlite only, not to {kind}.")
            return 1
        return self._export(command, Path(command.program[0]), version)

    def _export(self, command: CommandLine, report: Path, version: str) -> int:
        import sqlite3  # noqa: PLC0415

        from assay_virtual.tools.nsys.export import export_sqlite  # noqa: PLC0415

        database = Path(command.text("output") or report.with_suffix(".sqlite"))
        if not report.exists():
            self.say(f"Exportation error: File not found: '{report}'.")
            return 1
        if database.exists():
            if not command.is_on("force-overwrite"):
                self.say(f"Exportation error: File already exists: '{database}'.\n{_OVERWRITE}")
                return 1
            database.unlink()
        arguments = {"INPUT_FILE": report.name, "OUTUPT_FILE": database.name, "LAZY": "true"}
        try:
            capture = Capture.read(report)
            export_sqlite(capture, database, version, arguments)
        except ContainerError:
            self.say("Exportation error: Section Table Reference magic number mismatch.")
            return 1
        except (OSError, sqlite3.Error) as error:
            self.say(f"Exportation error: {error}.")
            return 1
        if not command.is_on("quiet"):
            count = capture.launches.rows
            self._print(f"Processing {count} events: [{'=' * 54}100%]\n")
        return 0


def _report_path(command: CommandLine, variables: Mapping[str, str]) -> Path:
    name = command.text("output")
    if "output" not in command:
        name = next(f"report{n}" for n in range(1, 100_000) if not Path(f"report{n}.nsys-rep").exists())
    return Path(name if name.endswith(".nsys-rep") else f"{name}.nsys-rep")


def _temporary_report(variables: Mapping[str, str]) -> Path:
    """A free name like the real tool's, in the temporary folder."""
    folder = variables.get("TMPDIR") or "/tmp"
    handle, name = tempfile.mkstemp(prefix="nsys-report-", suffix=".nsys-rep", dir=folder)
    os.close(handle)
    Path(name).unlink()
    return Path(name)


if __name__ == "__main__":
    sys.exit(main())
