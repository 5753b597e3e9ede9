"""The local policy file: what a server may ask this agent to run. Read once, when the agent starts.

Source: docs/agent.md, "The policy file".
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from assay_agent.policy.variables import loads_code
from assay_core.bundles.form import DEFAULT_BOUNDS
from assay_sampling.errors import InputError

DEFAULT_POLICY_FILE = Path("/etc/assay/policy.toml")
REST = "..."
_MOST_BYTES = 1 << 20


def machine_memory_bytes() -> int:
    """Memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _without_null(text: str) -> str:
    if not text or "\0" in text:
        raise ValueError("is empty, or holds a null character")
    return text


def _absolute(pattern: str) -> str:
    if not _without_null(pattern).startswith("/"):
        raise ValueError(f"{pattern!r} is not an absolute path")
    return pattern


def _variable(name: str) -> str:
    if set(name) & set("*?["):
        raise ValueError(
            f"{name!r} is a pattern, and would also let in variables that load code, as OMP_* lets in "
            "OMP_TOOL_LIBRARIES: name each variable by itself"
        )
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"{name!r} is not the name of an environment variable")
    if loads_code(name):
        raise ValueError(
            f"{name!r} is for loaders and tools, so no campaign may set it: leave it out; the agent's own "
            "PATH and LD_LIBRARY_PATH reach programs"
        )
    return name


def _rest_is_last(patterns: list[str]) -> list[str]:
    if REST in patterns[:-1]:
        raise ValueError(f"{REST!r} stands for all further arguments, so it comes last")
    return patterns


PathPattern = Annotated[str, AfterValidator(_absolute)]
TextPattern = Annotated[str, AfterValidator(_without_null)]
VariableName = Annotated[str, AfterValidator(_variable)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Rule(_Table):
    """A command that is allowed.

    ``arguments`` are patterns, one for each argument in order, the last one possibly ``...``; None: any
    arguments. ``directories`` and ``environment`` (names, not patterns) are added to those of the whole
    file.
    """

    name: TextPattern = ""
    program: PathPattern
    arguments: Annotated[list[TextPattern], AfterValidator(_rest_is_last)] | None = None
    directories: list[PathPattern] = []
    environment: list[VariableName] = []


class Bundles(_Table):
    """That files which submitters send may run here, in bubblewrap.

    ``bubblewrap``: the path of bwrap, if it is not in the system's folders. ``readable``: files and folders
    of the box that they may read besides system programs. ``network``: whether they may use the box's
    network. ``most_bytes``: of one bundle, unpacked. ``disk_bytes``: of all files that one run writes.
    ``memory_bytes``: of its processes and these files together.
    """

    bubblewrap: PathPattern | None = None
    readable: list[PathPattern] = []
    network: bool = False
    most_bytes: int = Field(default=DEFAULT_BOUNDS.bytes, ge=1)
    disk_bytes: int = Field(default=4 << 30, ge=1 << 20, le=1 << 50)
    memory_bytes: int = Field(default_factory=lambda: machine_memory_bytes() * 3 // 4, ge=1 << 20)


class Policy(_Table):
    """What a server may ask for. ``path`` is the file it was read from, for messages.

    ``users`` are the names of users that the agent may run as, empty: any but root.
    """

    version: Literal[1]
    users: list[TextPattern] = []
    allow_root: bool = False
    directories: list[PathPattern] = []
    environment: list[VariableName] = []
    recordings: list[PathPattern] = []
    allow: list[Rule] = []
    bundles: Bundles | None = None
    path: Path = Field(default=Path("policy.toml"), exclude=True)

    def title(self, rule: Rule) -> str:
        """A rule's name in messages: its name, or its position in the file."""
        return f"rule {rule.name!r}" if rule.name else f"rule {self.allow.index(rule) + 1}"


def read_policy(path: Path) -> Policy:
    """Read a policy file.

    Raises InputError if it cannot be read, is invalid (with its field), or could be changed by users other
    than root and this process's: such a file would protect nobody.
    """
    text = _trusted_text(path)
    try:
        document: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(path, f"it is not TOML: {error}", "correct the policy file") from error
    if "path" in document:
        raise InputError(path, "there is no such key", "'assay docs agent' lists the keys", field="path")
    try:
        return Policy.model_validate({**document, "path": path.absolute()})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part + 1 if isinstance(part, int) else part) for part in first["loc"])
        cause = first["msg"].removeprefix("Value error, ")
        raise InputError(
            path, cause, "'assay docs agent' lists the keys of a policy file", field=field
        ) from error


def _trusted_text(path: Path) -> str:
    """The content, after checking the owners of the opened file and of the folders above it."""
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            _require_ours(path, state)
            _require_ours(path.resolve().parent, path.resolve().parent.stat())
            if not stat.S_ISREG(state.st_mode):
                raise InputError(path, "it is not a file", "name a policy file")
            return file.read(_MOST_BYTES).decode()
    except OSError as error:
        remedy = "name a policy file with --policy, or make this one readable for the agent's user"
        raise InputError(path, f"it cannot be read ({error.strerror})", remedy) from error
    except UnicodeDecodeError as error:
        raise InputError(path, f"it is not UTF-8 ({error.reason})", "correct the policy file") from error


def _require_ours(path: Path, state: os.stat_result) -> None:
    others = state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    # In a sticky folder, such as /tmp, nobody can replace a file of another user.
    if path.is_dir() and state.st_mode & stat.S_ISVTX:
        others = 0
    if state.st_uid in (0, os.geteuid()) and not others:
        return
    raise InputError(
        path,
        "users other than root and this agent's may change it, so it protects nobody",
        f"chown root {path}; chmod go-w {path}",
    )
