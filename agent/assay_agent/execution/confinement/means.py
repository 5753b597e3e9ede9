"""How this box can confine a program: as another user in namespaces of its own, or in bubblewrap.

Decided once, by trying it: a program that cannot be confined is not started.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assay_agent.execution.confinement import entry
from assay_agent.execution.confinement.view import Mount, View

_TRY_SECONDS = 30.0
_NOBODY = 65534
_PROGRAM = "/bin/true"


@dataclass(frozen=True)
class Means:
    """A way that works here. ``user`` "": bubblewrap, whose path is ``bubblewrap``.

    ``readable`` and ``network``: what every confined program gets besides, by the policy.
    """

    user: str = ""
    user_id: int = 0
    group_id: int = 0
    bubblewrap: str = ""
    readable: tuple[str, ...] = ()
    network: bool = False

    @property
    def owner(self) -> tuple[int, int] | None:
        """User and group to whom writable folders must belong; None: to the agent's own."""
        return (self.user_id, self.group_id) if self.user else None

    @property
    def said(self) -> str:
        """For people."""
        return f"as user {self.user!r} in namespaces of their own" if self.user else "in bubblewrap"

    def command(self, argv: Sequence[str], view: View, folder: Path, stage: Path) -> list[str]:
        """The command that runs ``argv`` confined, in ``folder``; ``stage``: an empty private folder."""
        view = replace(view, readable=(*view.readable, *self.readable), network=self.network)
        if not self.user:
            return [*_bubblewrap(self, view, folder), "--", *argv]
        spec = {
            "user": self.user_id,
            "group": self.group_id,
            "network": self.network,
            "stage": str(stage),
            "folder": str(folder),
            "mounts": view.mounts(),
        }
        return [sys.executable, "-I", "-S", entry.__file__, json.dumps(spec), *argv]


def _bubblewrap(means: Means, view: View, folder: Path) -> list[str]:
    """The options of bubblewrap (0.4 or newer) for a view. Source: bwrap(1)."""
    words = [means.bubblewrap, "--die-with-parent", "--unshare-user", "--unshare-pid", "--unshare-ipc",
             "--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL"]  # fmt: skip
    if not means.network:
        words.append("--unshare-net")
    if os.geteuid() == 0:
        words += ["--uid", str(_NOBODY), "--gid", str(_NOBODY)]
    for mount in view.mounts():
        words += _option(mount)
    for path in ("/", *view.hidden):
        words += ["--remount-ro", path]
    return [*words, "--chdir", str(folder)]


def _option(mount: Mount) -> list[str]:
    kind, path, source = mount
    simple = {"proc": "--proc", "devices": "--dev", "temporary": "--tmpfs", "hidden": "--tmpfs"}
    if kind in simple:
        return [simple[kind], path]
    # The agent's own user is the program's, too, so it can read what lies in the agent's folders.
    named = {
        "read": "--ro-bind",
        "copy": "--ro-bind",
        "write": "--bind",
        "device": "--dev-bind",
        "link": "--symlink",
    }
    return [named[kind], source, path]


def find_means(
    run_as: str, *, bubblewrap: bool | str, readable: tuple[str, ...] = (), network: bool = False
) -> Means | str:
    """The way that a policy asks for, tried once; else why it does not work here."""
    found = (
        _as_user(run_as)
        if run_as
        else _in_bubblewrap(bubblewrap)
        if bubblewrap
        else "the policy names no way"
    )
    if isinstance(found, str):
        return found
    means = replace(found, readable=readable, network=network)
    why = _tried(means)
    return f"{means.said}: {why}" if why else means


def _as_user(name: str) -> Means | str:
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        return f"there is no user {name!r} on this box"
    if user.pw_uid in (0, os.geteuid()):
        return f"'run_as' names {name!r}, who is root or this agent's own user: it must be another one"
    if os.geteuid() != 0:
        return "only an agent that runs as root can run programs as another user; or say 'bubblewrap = true'"
    return Means(user=name, user_id=user.pw_uid, group_id=user.pw_gid)


def _in_bubblewrap(given: bool | str) -> Means | str:
    path = shutil.which(given if isinstance(given, str) else "bwrap", path="/usr/local/bin:/usr/bin:/bin")
    return Means(bubblewrap=path) if path else "bwrap is not installed (Debian's package bubblewrap)"


def _tried(means: Means) -> str:
    """Why a program cannot be confined here; "" if it can."""
    with tempfile.TemporaryDirectory(prefix="assay-confined-") as name:
        folders = [Path(name, part) for part in ("work", "stage")]
        for folder in folders:
            folder.mkdir()
        view = View(writable=(str(folders[0]),))
        try:
            done = subprocess.run(
                means.command([_PROGRAM], view, *folders),
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TRY_SECONDS, check=False,
                env={"PATH": "/usr/bin:/bin"},
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"it cannot be started ({error})"
    if done.returncode == 0:
        return ""
    said = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
    return f"this box does not let it make namespaces: {said[:300]}"
