"""Decides in one place, before any process is started, whether this agent does what a server asks.

Without a policy file, a server behind a socket that only this user and root can take may run any command, as
they may anyway. Over TCP it may run none: the server is certified, but it and whoever submits to it are other
users. Some requests are refused regardless of the file, because no honest campaign makes them. Source:
docs/agent.md, "The policy file".
"""

from __future__ import annotations

import dataclasses
import logging
import os
import pwd
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay_agent.execution.confinement.command import BundledCommand
from assay_agent.execution.confinement.means import Means, find_means
from assay_agent.execution.errors import ProfilerError
from assay_agent.policy.file import Bundles, Policy, Rule
from assay_agent.policy.paths import JudgedPaths, shown, wrong_arguments
from assay_agent.policy.patterns import matches_path
from assay_agent.policy.variables import loads_code
from assay_agent.profilers.kineto_file import KINETO_VARIABLE, kineto_fault
from assay_core.records.work import CommandSource, Work
from assay_core.server_address import parse_address
from assay_sampling.errors import NotReadyError
from assay_sampling.running.failures import FailureClass

_log = logging.getLogger(__name__)

# These also reach the profiler, so they are refused without a policy that allows them.
_INJECTING = re.compile(r"LD_(PRELOAD|AUDIT)|(CUDA|NVTX)_INJECTION\w*", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONFINE = "'assay-agent doctor' says what this box lacks; 'assay docs bundles' what is needed"
_ANYBODY = "over TCP other people and other machines ask for runs, and none of them is this agent's user"
_SHARED = "at a socket that --socket-owner trusts every member of its group asks for runs"
_WRITE = "write a policy file that says what may run, and start the agent with --policy FILE"
_SAY_WHAT = f"connect through a Unix socket (leave --server out, or give unix:PATH), or {_WRITE}"


@dataclass(frozen=True)
class Decision:
    """Whether a command may run.

    Args:
        allowed: the answer.
        why: one sentence without a full stop.
        remedy: how to get it allowed; "" if it is.
        program: the file that was asked for, as it was found, links not followed; "" if none was.
        resolved: that file, links followed; rules are compared with it.
        rule: the rule that allows it, or that came closest; "" in a policy without rules.
        runs: the path that is started: ``resolved``, or ``program`` if a rule names that link itself and
            nobody else can change it; "" if no policy judged it.
        note: which part of an allowed command other users control, and who they are; "" if none.
    """

    allowed: bool
    why: str
    remedy: str = ""
    program: str = ""
    resolved: str = ""
    rule: str = ""
    runs: str = ""
    note: str = ""


class Gate:
    """Decides for one agent what may run.

    Args:
        policy: the policy file; None: no policy file.
        server_is_ours: whether only this user and root can be, or can reach, the server that asks.
        shared_socket: whether it is not because others share its socket, rather than because of TCP.
        search_path: the PATH in which programs without a slash are looked up; None: this process's.
        user_id: the user that the agent runs as; None: this process's.
    """

    def __init__(
        self,
        policy: Policy | None,
        *,
        server_is_ours: bool,
        shared_socket: bool = False,
        search_path: str | None = None,
        user_id: int | None = None,
    ) -> None:
        self.policy = policy
        self._server_is_ours = server_is_ours
        self._whoever = _SHARED if shared_socket else _ANYBODY
        self._remedy = _WRITE if shared_socket else _SAY_WHAT
        self._search_path = os.environ.get("PATH", os.defpath) if search_path is None else search_path
        self._user_id = os.geteuid() if user_id is None else user_id
        self._logged_notes: set[str] = set()
        self.means = _means(policy)

    def admit(self, work: Work) -> Work:
        """The work with its program, paths and folder replaced by the paths that were judged, and pinned.

        Raises ProfilerError (``refused_by_policy``).
        """
        if work.recorded is not None:
            decision = self.decide_recording(work.recorded.path)
            _require(decision, str(work.key))
            if decision.resolved:
                recorded = dataclasses.replace(work.recorded, path=Path(decision.resolved))
                work = dataclasses.replace(work, recorded=recorded)
        if work.command is None:
            return work
        if work.command.bundle is not None:
            return self._admit_bundle(work, work.command)
        paths = JudgedPaths(work.command.working_directory)
        decision = self.decide(work.command, paths)
        _require(decision, str(work.key))
        if not decision.runs:
            return work
        if decision.note and decision.note not in self._logged_notes:
            self._logged_notes.add(decision.note)
            _log.warning("%s: %s", self.policy.path if self.policy else "policy", decision.note)
        try:
            judged = paths.judged(work.command, decision.runs, decision.resolved)
        except OSError as error:
            raise ProfilerError(
                FailureClass.APPLICATION_FAILED,
                str(work.key),
                f"the program {shown(decision.program)} cannot be opened ({error.strerror})",
                "correct the command in the campaign file, or let the agent's user reach the program",
            ) from error
        if judged is None:
            _require(_changed(decision), str(work.key))
        return dataclasses.replace(work, command=judged)

    @property
    def runs_bundles(self) -> bool:
        """Whether the policy lets files of submitters run here, and this box can confine them."""
        return isinstance(self.means, Means) and not self.wrong_user()

    def _admit_bundle(self, work: Work, command: CommandSource) -> Work:
        """The work with its command to be confined; raises ProfilerError."""
        _require(self.decide_bundle(command), str(work.key))
        assert isinstance(self.means, Means)
        return work.with_command(BundledCommand.of(command, self.means))

    def decide_bundle(self, command: CommandSource) -> Decision:
        """Whether files of a submitter may run; never raises."""
        policy = self.policy
        allowed = None if policy is None else policy.bundles
        if policy is None or allowed is None:
            where = "there is no policy file" if policy is None else f"{policy.path} has no table [bundles]"
            return Decision(False, f"{where}, so no files of submitters run here", "see: assay docs bundles")
        fault = next(_hostile_in_bundle(command), "") or self.wrong_user()
        if fault:
            return Decision(False, fault, "correct the campaign file")
        if command.bundle is not None and command.bundle.bytes > allowed.most_bytes:
            size, most = command.bundle.bytes, allowed.most_bytes
            why = f"the bundle has {size:,} bytes, and {policy.path} allows {most:,}"
            return Decision(False, why, "send less, or raise 'most_bytes' there")
        if not isinstance(self.means, Means):
            return Decision(False, f"files of submitters cannot be confined here: {self.means}", _CONFINE)
        return Decision(True, f"{policy.path} allows files of submitters in bubblewrap")

    def decide(self, command: CommandSource, paths: JudgedPaths | None = None) -> Decision:
        """Whether the command may run; never raises. ``paths`` remembers where its paths led."""
        paths = paths or JudgedPaths(command.working_directory)
        fault = next(_hostile(command), "")
        if fault:
            return Decision(False, fault, "correct the campaign file")
        if self.policy is None:
            return self._without_policy(command)
        wrong_user = self.wrong_user()
        if wrong_user:
            return Decision(
                False, wrong_user, f"start the agent as another user, or change {self.policy.path}"
            )
        return self._by_rules(self.policy, command, paths)

    def decide_recording(self, path: Path) -> Decision:
        """Whether a recording may be read and sent to the server; never raises."""
        named = shown(str(path))
        if "\0" in str(path):
            return Decision(False, f"the path {named} holds a null character", "correct the campaign file")
        if self.policy is None:
            return self._everything(f"read {named}")
        resolved = os.path.realpath(path)
        why = f"no pattern of 'recordings' in {self.policy.path} matches {shown(resolved)}"
        if _is_recording(self.policy, resolved):
            why = _link_out_of(self.policy, resolved)
        if not why:
            return Decision(
                True, f"{self.policy.path} allows the recording {shown(resolved)}", resolved=resolved
            )
        return Decision(
            False,
            why,
            f"add the file or its folder to 'recordings' in {self.policy.path}, and reload the agent",
            resolved=resolved,
        )

    def wrong_user(self) -> str:
        """Why the agent's own user may run nothing; "" if it may."""
        if self.policy is None:
            return ""
        if self._user_id == 0:
            forbidden = f"this agent runs as root, and {self.policy.path} does not say 'allow_root = true'"
            return "" if self.policy.allow_root else forbidden
        name = _user_name(self._user_id)
        if self.policy.users and name not in self.policy.users:
            return f"this agent runs as {name!r}, who is not among 'users' in {self.policy.path}"
        return ""

    def require_user(self) -> None:
        """Raises NotReadyError if the agent's own user may run nothing, for agents that start."""
        wrong_user = self.wrong_user()
        if wrong_user:
            raise NotReadyError(
                "this agent", wrong_user, "start it as the user that the policy file is written for"
            )

    def require_a_use(self) -> None:
        """Raises NotReadyError if this agent would refuse every run: it would fail them all for good."""
        if self.policy is None and not self._server_is_ours:
            raise NotReadyError(
                "this agent",
                f"there is no policy file, and {self._whoever}: it may run nothing",
                self._remedy,
            )

    def describe(self) -> str:
        """The rules in force, for the log."""
        if self.policy is not None:
            count = len(self.policy.allow)
            return (
                f"the policy file {self.policy.path} is in force: {count} command rules, all else is refused"
            )
        name = _user_name(self._user_id)
        if self._server_is_ours:
            return (
                "there is no policy file: the server, at a socket of this user's own, may run any command "
                f"as {name!r}; name one with --policy to say which"
            )
        return f"there is no policy file, and {self._whoever}: nothing is run, and no recording is read"

    def _without_policy(self, command: CommandSource) -> Decision:
        injecting = sorted(name for name in command.environment if _INJECTING.fullmatch(name))
        if injecting:
            return Decision(
                False,
                f"{', '.join(injecting)} would load code into the profiler, and no policy file allows it",
                "leave it out of the campaign file, or write a policy file that names it in 'environment'",
            )
        return self._everything("run any command")

    def _everything(self, what: str) -> Decision:
        if self._server_is_ours:
            return Decision(True, f"there is no policy file, and this user's own server may {what}")
        return Decision(
            False, f"there is no policy file, and {self._whoever}: it may not {what}", self._remedy
        )

    def _by_rules(self, policy: Policy, command: CommandSource, paths: JudgedPaths) -> Decision:
        program = self._program(command)
        resolved = paths.resolved(program) if program else ""
        if not program:
            return Decision(
                False,
                f"the program {shown(command.argv[0])} is not in the PATH of the agent",
                "write the program's full path into the campaign file",
            )
        closest = ("", "")
        for rule in policy.allow:
            if not matches_path(rule.program, resolved):
                continue
            paths.arguments.clear()
            against = next(_against(policy, rule, command, paths), "")
            title = policy.title(rule)
            if not against:
                why = f"{title} of {policy.path} allows it"
                runs, note = paths.started(rule, program)
                return Decision(True, why, "", program, resolved, title, runs, note)
            closest = closest if closest[0] else (title, against)
        title, against = closest
        if against:
            why = f"{title} of {policy.path} allows the program {shown(resolved)}, but {against}"
        else:
            why = f"no rule of {policy.path} allows the program {shown(resolved)}"
        remedy = (
            f"change the campaign, or have {policy.path} allow it, reload the agent, "
            "and try again what failed: assay lab retry CAMPAIGN"
        )
        if any(loads_code(name) for name in command.environment):
            remedy = "leave variables of loaders and tools out of the campaign file: no policy lets them in"
        return Decision(False, why, remedy, program, resolved, title)

    def _program(self, command: CommandSource) -> str:
        """The file that the first word names, with links and ``..`` for the system to follow; "" for none."""
        word = command.argv[0]
        if word.startswith("/"):
            return word
        file = shutil.which(word, path=self._search_path) or ""
        return file if file.startswith("/") else ""


def _means(policy: Policy | None) -> Means | str:
    """How files of submitters are confined here; else why they cannot run."""
    if policy is None or policy.bundles is None:
        return "the policy does not enable them"
    bundles = policy.bundles
    return means_of(bundles)


def means_of(bundles: Bundles) -> Means | str:
    """How a policy's bundles are confined here; else why they cannot be."""
    return find_means(
        bundles.bubblewrap,
        readable=tuple(bundles.readable),
        network=bundles.network,
        disk_bytes=bundles.disk_bytes,
        memory_bytes=bundles.memory_bytes,
    )


def _hostile_in_bundle(command: CommandSource) -> Iterator[str]:
    """Requests for a bundle that no honest campaign makes; a relative path names a program in it."""
    yield from _hostile(command, may_be_relative=True)
    if command.working_directory:
        yield f"a command in a bundle runs there, not in {shown(command.working_directory)}"
    for name in sorted(command.environment):
        # It would reach the tools that start outside.
        if loads_code(name):
            yield f"the environment variable {name} is for loaders and tools; the bundle's program can set it"


def _changed(decision: Decision) -> Decision:
    return Decision(
        False,
        f"the program {shown(decision.program)} was changed while it was judged",
        "find out who changes it, and submit the campaign again",
    )


def _against(policy: Policy, rule: Rule, command: CommandSource, paths: JudgedPaths) -> Iterator[str]:
    """The parts of the command that a rule for its program does not allow."""
    yield from wrong_arguments(rule, command, paths)
    yield from _wrong_directory([*policy.directories, *rule.directories], command, paths)
    yield from _wrong_environment({*policy.environment, *rule.environment}, command)


def _wrong_directory(patterns: list[str], command: CommandSource, paths: JudgedPaths) -> Iterator[str]:
    if not command.working_directory:
        return  # one of the agent's own folders
    resolved = paths.resolved(command.working_directory)
    if not any(matches_path(pattern, resolved) for pattern in patterns):
        below = next((each for each in patterns if each in (f"{resolved}/*", f"{resolved}/**")), "")
        hint = f", for {shown(below)} allows only what is below it: add the directory itself" if below else ""
        yield f"not the working directory {shown(resolved)}{hint}"


def _wrong_environment(named: set[str], command: CommandSource) -> Iterator[str]:
    # A variable tells the program to write the file that the server names.
    traced = [KINETO_VARIABLE] if command.kineto_file else []
    for name in sorted([*command.environment, *traced]):
        if loads_code(name):
            yield f"never the environment variable {name}, which is for loaders and tools"
        elif name not in named:
            yield f"not the environment variable {name}"


def _hostile(command: CommandSource, *, may_be_relative: bool = False) -> Iterator[str]:
    """Requests that no honest campaign makes."""
    if not command.argv or not command.argv[0]:
        yield "the command names no program"
        return
    words = [*command.argv, command.working_directory, *command.environment.values()]
    if any("\0" in word for word in words):
        yield "the command, its directory or its environment holds a null character"
    program = command.argv[0]
    if program.startswith("-"):
        yield f"the program's name {shown(program)} would be an option of the profiler"
    if "/" in program and not program.startswith("/") and not may_be_relative:
        # A server makes the programs of a campaign absolute when it is submitted.
        yield f"the program {shown(program)} is a relative path, and the server does not say relative to what"
    if not program.isprintable():
        yield f"the program's name {shown(program)} holds characters that cannot be printed"
    if command.working_directory and not command.working_directory.startswith("/"):
        yield f"the working directory {shown(command.working_directory)} is not an absolute path"
    yield from _hostile_surroundings(command)


def _hostile_surroundings(command: CommandSource) -> Iterator[str]:
    fault = kineto_fault(command.kineto_file) if command.kineto_file else ""
    if fault:
        yield f"the Kineto file {shown(command.kineto_file)}: {fault}"
    for name in sorted(command.environment):
        if not _VARIABLE.fullmatch(name):
            yield f"{shown(name)} is not the name of an environment variable"


def _is_recording(policy: Policy, resolved: str) -> bool:
    return any(matches_path(pattern, resolved) for pattern in policy.recordings)


def _link_out_of(policy: Policy, recording: str) -> str:
    """The link that leads out of a recording that is a folder; "" if none does, and for files."""
    try:
        with os.scandir(recording) as entries:
            links = [entry for entry in entries if entry.is_symlink()]
    except OSError:
        return ""  # a file, or the reader will say so
    for link in links:
        leads_to = os.path.realpath(link.path)
        if not _is_recording(policy, leads_to):
            return (
                f"in {shown(recording)} the link {shown(link.name)} leads to {shown(leads_to)}, which no "
                f"pattern of 'recordings' in {policy.path} matches"
            )
    return ""


def gate_for(policy: Policy | None, server: str, socket_owner: str) -> Gate:
    """The gate for the server at an address; one whose socket others share is not this user's own."""
    at_socket = parse_address(server).socket is not None
    shared = at_socket and bool(socket_owner)
    return Gate(policy, server_is_ours=at_socket and not shared, shared_socket=shared)


def _require(decision: Decision, subject: str) -> None:
    if not decision.allowed:
        raise ProfilerError(FailureClass.REFUSED_BY_POLICY, subject, decision.why, decision.remedy)


def _user_name(user_id: int) -> str:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)
