"""Podman as a user who is not root, although the tests are: a user who is known in one mount namespace alone.

Nothing on the machine changes: /etc/passwd and the ranges of numbers that newuidmap gives to users are
copies, mounted over the machine's in that namespace, and everything else is in one folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

USER, NUMBER, FIRST, NUMBERS = "assay-rootless", 61001, 6_100_000, 65536
_NEEDED = {"newuidmap": "uidmap", "unshare": "util-linux", "setpriv": "util-linux", "nsenter": "util-linux"}
# Where /dev/net/tun is not open to all (as udev makes it), the namespace has one that is.
_PREPARE = """
set -eu
mount --make-rshared /
for file in passwd subuid subgid; do mount --bind "$1/etc/$file" "/etc/$file"; done
if test -c /dev/net/tun; then
  mount -t tmpfs -o mode=755 tmpfs /dev/net
  mknod -m 666 /dev/net/tun c 10 200 || umount /dev/net
fi
echo ready
exec sleep infinity
"""


def why_not() -> str:
    """Why nobody but root can run Podman here, as far as files say; "" if they may."""
    packages = sorted({package for program, package in _NEEDED.items() if shutil.which(program) is None})
    if packages:
        return f"rootless Podman: install Debian's {', '.join(packages)}"
    for name, least in (("kernel/unprivileged_userns_clone", 1), ("user/max_user_namespaces", 2)):
        path = Path("/proc/sys", name)
        if path.exists() and int(path.read_text()) < least:
            return f"rootless Podman: {path} is {path.read_text().strip()}"
    return ""


class RootlessPodman:
    """Podman of that user; containers, images and the user's folder are gone after the ``with``."""

    def __enter__(self) -> RootlessPodman:
        self.folder = Path(tempfile.mkdtemp(prefix="assay-rootless-"))
        self.folder.chmod(0o711)
        self._write_settings()
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", _PREPARE, "sh", str(self.folder)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._holder.stdout is not None
        self.is_ready = self._holder.stdout.readline() == "ready\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_ready:
            # reset also ends the process that keeps the user's namespaces
            self.run("podman", "system", "reset", "--force", check=False)
        with self._holder:
            self._holder.kill()
        shutil.rmtree(self.folder)

    def why_not(self) -> str:
        """Why it cannot start a process with several users; "" if it can."""
        if not self.is_ready:
            return "rootless Podman: no mount namespace for its user"
        tried = self.run("podman", "unshare", "true", check=False)
        lines = tried.stderr.strip().splitlines()
        return f"rootless Podman: {lines[-1] if lines else tried.returncode}" if tried.returncode else ""

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run ``podman``, or another program, as that user in the user's folder."""
        home = self.folder / "home"
        own = {"HOME": str(home), "USER": USER, "XDG_RUNTIME_DIR": str(self.folder / "run")}
        own |= {"PATH": os.environ["PATH"], "CONTAINERS_CONF": str(home / "containers.conf")}
        enter = ["nsenter", "--mount", f"--target={self._holder.pid}"]
        user = ["setpriv", f"--reuid={NUMBER}", f"--regid={NUMBER}", "--clear-groups", "--"]
        at_home = ["sh", "-c", 'cd && exec "$@"', "sh"]
        return subprocess.run(
            [*enter, *user, *at_home, *words],
            env=own,
            check=check,
            text=True,
            capture_output=True,
            timeout=900,
        )

    def said(self, *words: str) -> list[str]:
        """The lines that ``podman WORDS`` prints."""
        return self.run("podman", *words).stdout.splitlines()

    def _write_settings(self) -> None:
        for name in ("home", "run"):
            (self.folder / name).mkdir(mode=0o700)
            os.chown(self.folder / name, NUMBER, NUMBER)
        etc = self.folder / "etc"
        etc.mkdir()
        entry = f"{USER}:x:{NUMBER}:{NUMBER}::{self.folder}/home:/bin/sh\n"
        (etc / "passwd").write_text(Path("/etc/passwd").read_text() + entry)
        for name in ("subuid", "subgid"):
            (etc / name).write_text(f"{USER}:{FIRST}:{NUMBERS}\n")
        (self.folder / "home" / "containers.conf").write_text(
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        )
        storage = self.folder / "home" / ".config" / "containers" / "storage.conf"
        storage.parent.mkdir(parents=True)
        storage.write_text('[storage]\ndriver = "overlay"\n')
        for path in (self.folder / "home").rglob("*"):
            os.chown(path, NUMBER, NUMBER)
