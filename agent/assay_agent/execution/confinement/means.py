"""How this box confines a program: in bubblewrap. Decided once, by trying it: else no bundle is run.

Source: bwrap(1), nsenter(1), setpriv(1).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from assay_agent.execution.confinement import start
from assay_agent.execution.confinement.place import NOBODY, TMPFS, Place, PlaceError
from assay_agent.execution.confinement.seccomp import seccomp_filter
from assay_agent.execution.confinement.view import Mount, View

_TRY_SECONDS = 60.0
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_MOST_PROCESSES = 4096
_TRIED_BYTES = 1 << 20
# Folders of the place, and where a confined program has them besides its home, TMPDIR and working folder.
_TEMPORARY = {"/tmp": "all", "/var/tmp": "var", "/run": "run", "/dev/shm": "shm"}
FOLDERS = tuple(_TEMPORARY.values())
_OPTIONS = {
    "read": "--ro-bind", "write": "--bind", "device": "--dev-bind", "link": "--symlink", "proc": "--proc",
    "devices": "--dev", "hidden": "--tmpfs",
}  # fmt: skip
_KERNEL = Path("/proc/sys")
# Settings by which a system forbids user namespaces, the value that does, and the remedy.
_FORBIDDING = (
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "AppArmor keeps programs from using user namespaces: give the agent's Python a profile with "
        "'userns,', or set kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    ("kernel/unprivileged_userns_clone", "0", "set kernel.unprivileged_userns_clone=1"),
    ("user/max_user_namespaces", "0", "set user.max_user_namespaces to more than 0"),
)
_ELSE = (
    "containers, pods and systemd's hardening often forbid it: for the unit there is bundles.conf in "
    "deploy/systemd; a container or pod must let programs make user namespaces and mount /proc"
)


@dataclass(frozen=True)
class Means:
    """bubblewrap as it works here, and what every confined program gets by the policy.

    Args:
        bubblewrap: its path.
        readable: of the box, besides system programs.
        network: whether the box's network is there.
        disk_bytes: of all files that one run writes.
        memory_bytes: of all its processes and files together, whatever the campaign asks for; 0: no bound.
    """

    bubblewrap: str
    readable: tuple[str, ...] = ()
    network: bool = False
    disk_bytes: int = _TRIED_BYTES
    memory_bytes: int = 0

    def memory_limit(self, asked_bytes: int) -> int:
        """The memory that a run may take which asked for so much (0: for no limit)."""
        return min(filter(None, (asked_bytes, self.memory_bytes)), default=0)

    def command(
        self, argv: Sequence[str], view: View, folder: Path, place: Place, refusal: Path
    ) -> list[str]:
        """The command that runs ``argv`` confined, in ``folder``.

        ``refusal``: a file for why it was not started, if its space is not as it should be.
        """
        view = replace(
            view,
            readable=(*view.readable, *self.readable),
            temporary=tuple((path, f"{TMPFS}/{name}") for path, name in _TEMPORARY.items()),
            network=self.network,
        )
        mounts = view.mounts()
        entered = [
            "nsenter",
            "--preserve-credentials",
            "--user",
            "--mount",
            "--target",
            str(place.process_id),
        ]
        spec = {
            "command": [
                *entered,
                "--",
                self.bubblewrap,
                *self._options(mounts, view),
                "--chdir",
                str(folder),
            ],
            "mounts": [(kind, path) for kind, path, _ in mounts],
            "filter": (seccomp_filter() or b"").hex(),
            "processes": _MOST_PROCESSES,
            "refusal": str(refusal),
        }
        return [sys.executable, "-I", "-S", start.__file__, json.dumps(spec), *_as_nobody(), *argv]

    def _options(self, mounts: Sequence[Mount], view: View) -> list[str]:
        words = ["--die-with-parent", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
                 "--unshare-cgroup-try", "--cap-drop", "ALL"]  # fmt: skip
        if os.geteuid():
            words += ["--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY)]
        else:
            # Its own user, who has rights in /proc/sys by being root, is given up inside.
            for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"):
                words += ["--cap-add", capability]
        if not self.network:
            words.append("--unshare-net")
        ready: set[str] = set()
        for kind, path, source in mounts:
            # bubblewrap makes folders on the way for itself alone, and with --dir for everybody.
            for folder in reversed(PurePosixPath(path).parents[:-1]):
                if not ready & {str(folder), *map(str, folder.parents)}:
                    words += ["--dir", str(folder)]
            if kind == "read":
                ready.add(path)
            words += [_OPTIONS[kind], *([source] if source else []), path]
        for path in ("/", "/dev", *view.hidden):
            words += ["--remount-ro", path]
        return words


def _as_nobody() -> list[str]:
    """Before the program, where this user is root: become another user for good."""
    if os.geteuid():
        return []
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all",
            "--ambient-caps=-all", "--bounding-set=-all", "--"]  # fmt: skip


def find_means(
    bubblewrap: str | None = None,
    *,
    readable: tuple[str, ...] = (),
    network: bool = False,
    disk_bytes: int = _TRIED_BYTES,
    memory_bytes: int = 0,
) -> Means | str:
    """The way to confine programs here, tried once; else why it does not work, and what to do."""
    path = shutil.which(bubblewrap or "bwrap", path=_PATH)
    if path is None:
        return f"{bubblewrap or 'bwrap'} is not installed (Debian's package bubblewrap)"
    if seccomp_filter() is None:
        return "there is no filter of system calls for this kind of processor"
    means = Means(path, readable, network, disk_bytes, memory_bytes)
    why = _tried(means)
    return f"bubblewrap does not work here: {why}; {_remedy()}" if why else means


def _tried(means: Means) -> str:
    """Why a program cannot be confined here; "" if it can."""
    with tempfile.TemporaryDirectory(prefix="assay-confined-") as name:
        place, refusal = Place(Path(name, "place"), _TRIED_BYTES), Path(name, "refusal")
        try:
            place.open((*FOLDERS, "work"))
            work = place.path / "work"
            completed = subprocess.run(
                means.command(["true"], View(writable=((str(work), f"{TMPFS}/work"),)), work, place, refusal),
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TRY_SECONDS, check=False,
                env={"PATH": _PATH},
            )  # fmt: skip
        except (OSError, PlaceError, subprocess.TimeoutExpired) as error:
            return str(error)
        finally:
            place.close()
        if completed.returncode == 0:
            return ""
        last_line = (completed.stderr.strip() or f"exit status {completed.returncode}").splitlines()[-1][:300]
        return f"{last_line} ({refusal.read_text()})" if refusal.exists() else last_line


def _remedy() -> str:
    for setting, value, remedy in _FORBIDDING:
        try:
            if (_KERNEL / setting).read_text().strip() == value:
                return remedy
        except OSError:
            continue
    return _ELSE
