"""The paths of a command: where they lead when it is judged, what starts there, and who else decides that.

Links and ``..`` are followed once; what they led to is judged and is what runs. docs/agent.md, "What was
judged is what runs".
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from assay_agent.execution.pinned import JudgedCommand, Pinned, pin_program
from assay_agent.policy.file import REST, Rule
from assay_agent.policy.patterns import matches, matches_path
from assay_core.files.private_folders import user_name, why_not_ours
from assay_core.records.work import CommandSource

_MOST_SHOWN = 120
# The prefix of a path within one word: --data=/srv/x, key=/srv/x, @/srv/x, -I/srv/x.
_BEFORE_PATH = re.compile(r"([^/*?\[]*[=@]|-[A-Za-z])(?=/)")
_UPWARDS = re.compile(r"(?:^|[/=@,:])\.\.(?:/|$)")


class JudgedPaths:
    """Where the paths of one command led when they were judged: looked up once, so that answers agree.

    ``arguments``: for those that a rule judged as paths, by number, the text before the path and where the
    path led.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._real_paths: dict[str, str] = {}
        self.arguments: dict[int, tuple[str, str]] = {}

    def resolved(self, path: str) -> str:
        """Where a path leads, links followed; a relative one from the working directory."""
        whole = path if path.startswith("/") else f"{self.resolved(self._directory)}/{path}"
        if whole not in self._real_paths:
            self._real_paths[whole] = os.path.realpath(whole)
        return self._real_paths[whole]

    def can_lead(self, path: str) -> bool:
        """Whether it is known where a path leads: a relative one needs a working directory."""
        return bool(self._directory) or path.startswith("/")

    def started(self, rule: Rule, program: str) -> tuple[str, str]:
        """The path by which a program is started, and a note if other users decide what starts.

        A link that a rule names itself is kept if nobody else can change it: Python finds its virtual
        environment by the path that started it.
        """
        runs = resolved = self.resolved(program)
        if rule.program == program != resolved:
            why = _why_others_write(Path(program).parent)
            runs = resolved if why else program
        if runs == resolved != program == rule.program:
            return runs, (
                f"{resolved!r} is started, without the virtual environment that {program!r} may belong to, "
                f"because {why}"
            )
        for path in (resolved, *(path for _, path in self.arguments.values())):
            why = _why_others_decide(path)
            if why:
                return runs, f"the rule allows {shown(path)}, but others decide what is there: {why}"
        return runs, ""

    def judged(self, command: CommandSource, runs: str, resolved: str) -> CommandSource | None:
        """The command with the paths that were judged; None if its program has changed since.

        Raises OSError if the program cannot be opened.
        """
        program = pin_program(runs, resolved)
        if program is None:
            return None
        pins, directory = [program], command.working_directory
        argv = [runs, *command.argv[1:]]
        for number, (before, path) in self.arguments.items():
            argv[number] = before + path
            pins.append(Pinned(path, path))
        if directory:
            directory = self.resolved(directory)
            pins.append(Pinned(directory, directory))
        return JudgedCommand.of(command, argv, directory, pins)


def wrong_arguments(rule: Rule, command: CommandSource, paths: JudgedPaths) -> Iterator[str]:
    """The arguments that a rule does not allow; ``paths`` records which of them it judges as paths."""
    if rule.arguments is None:
        return
    patterns, open_end = list(rule.arguments), rule.arguments[-1:] == [REST]
    if open_end:
        patterns.pop()
    arguments = command.argv[1:]
    if len(arguments) < len(patterns) or (len(arguments) > len(patterns) and not open_end):
        most = "or more" if open_end else "exactly"
        yield f"takes {len(patterns)} arguments {most}, not {len(arguments)}"
    for number, (pattern, argument) in enumerate(zip(patterns, arguments, strict=False), 1):
        if not _allows(pattern, number, argument, paths):
            yield f"argument {number}, {shown(argument)}, is not {pattern!r}"


def _allows(pattern: str, number: int, argument: str, paths: JudgedPaths) -> bool:
    match = _BEFORE_PATH.match(pattern)
    before = match[0] if match else ""
    if not pattern.startswith(before + "/"):
        # A text: only the folders above may be links.
        upwards = "/" in pattern and _UPWARDS.search(argument) and not _UPWARDS.search(pattern)
        return not upwards and matches(pattern, argument)
    path = argument.removeprefix(before)
    if not argument.startswith(before) or not paths.can_lead(path):
        return False
    # A path: where it leads counts, not how it is written.
    paths.arguments[number] = before, paths.resolved(path)
    return matches_path(pattern.removeprefix(before), paths.resolved(path))


def _why_others_decide(path: str) -> str:
    """Why users other than root and this one control a file's content; "" if they do not."""
    try:
        state = os.stat(path)  # noqa: PTH116 - a text as it was judged
    except OSError:
        return ""  # starting it, or the program, will report it
    if not stat.S_ISREG(state.st_mode):
        return ""  # a folder of data, a device
    if state.st_uid not in (0, os.geteuid()):
        return f"it belongs to user {user_name(state.st_uid)}"
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"other users may write into it (mode {state.st_mode & 0o7777:04o})"
    return _why_others_write(Path(path).parent)


def _why_others_write(folder: Path) -> str:
    try:
        return why_not_ours(folder)
    except OSError as error:
        return f"{error.filename or folder} cannot be looked at ({error.strerror or error})"


def shown(text: str) -> str:
    """A possibly hostile text, safe for messages and logs: one line, of bounded length."""
    return repr(text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "...")
