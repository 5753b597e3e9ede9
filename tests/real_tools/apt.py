"""Asking Debian's mirror for packages that this machine does not have, without touching its own apt.

The mirror, its keys and its proxies are those of the machine's own configuration; only the components
``contrib`` and ``non-free`` are added, in a private configuration. Standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

OS_RELEASE = Path("/etc/os-release")
_INSTALLED = Path("/var/lib/dpkg/status")
_COMPONENTS = "main contrib non-free"
_SECONDS = 1800.0
_CONFIGURATION = """\
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear APT::Update::Pre-Invoke;
#clear DPkg;
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Etc::SourceList "{folder}/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
APT::Sandbox::User "";
APT::Update::Error-Mode "any";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
"""


class UnavailableError(Exception):
    """The tools cannot be had here; the text says why."""


@dataclass(frozen=True)
class Package:
    """What the mirror says of a package."""

    name: str
    version: str
    download_bytes: int
    installed_bytes: int


def own_release() -> str:
    """The code name of this machine's Debian; raises UnavailableError elsewhere."""
    for program in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(program) is None:
            raise UnavailableError(f"there is no {program}: the tools come from Debian's packages")
    try:
        text = OS_RELEASE.read_text()
    except OSError as error:
        raise UnavailableError(f"{OS_RELEASE} cannot be read ({error.strerror})") from error
    fields = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text, re.MULTILINE))
    if fields.get("ID") != "debian" or not fields.get("VERSION_CODENAME"):
        raise UnavailableError(
            f"the packages are Debian's, and this is {fields.get('PRETTY_NAME', 'not it')}"
        )
    architecture = _run(["dpkg", "--print-architecture"], None).strip()
    if architecture != "amd64":
        raise UnavailableError(f"they are unpacked on amd64 only, and this is {architecture}")
    return fields["VERSION_CODENAME"]


class Mirror:
    """A release on the mirror that this machine itself uses.

    Args:
        folder: an empty private folder for apt's state.
        release: code name of the release to ask for.
        own: code name of this machine's release.

    Raises UnavailableError where apt has no such mirror, or it does not answer, or lacks the release.
    """

    def __init__(self, folder: Path, release: str, own: str) -> None:
        self.release = release
        for name in ("state/lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        (folder / "apt.conf").write_text(_CONFIGURATION.format(folder=folder))
        (folder / "sources.list").write_text(_source(own, release))
        self._environment = {**os.environ, "APT_CONFIG": str(folder / "apt.conf"), "LC_ALL": "C"}
        _run(["apt-get", "--quiet", "update"], self._environment)

    def packages(self, names: list[str]) -> list[Package]:
        """What the mirror says of them; raises UnavailableError where it lacks one."""
        text = _run(["apt-cache", "show", "--no-all-versions", *names], self._environment)
        found = {}
        for paragraph in text.split("\n\n"):
            field = dict(re.findall(r"^([\w-]+): (.*)$", paragraph, re.MULTILINE))
            if {"Package", "Version", "Size", "Installed-Size"} <= field.keys():
                sizes = int(field["Size"]), int(field["Installed-Size"]) << 10
                found[field["Package"]] = Package(field["Package"], field["Version"], *sizes)
        lacking = [name for name in names if name not in found]
        if lacking:
            raise UnavailableError(f"Debian {self.release} on this mirror has no {', '.join(lacking)}")
        return [found[name] for name in names]

    def lacking(self, names: list[str]) -> list[str]:
        """These packages and all that they need and this machine lacks; raises UnavailableError."""
        status = f"Dir::State::status={_INSTALLED}"
        command = ["apt-get", "--simulate", "--no-install-recommends", "--reinstall", "-o", status, "install"]
        text = _run([*command, *names], self._environment)
        return re.findall(r"^Inst (\S+) ", text, re.MULTILINE)

    def download(self, names: list[str], folder: Path) -> dict[str, Path]:
        """The .deb files, checked by apt; raises UnavailableError."""
        folder.mkdir(parents=True, exist_ok=True)
        _run(["apt-get", "--quiet", "download", *names], self._environment, folder)
        files = {name: next(folder.glob(f"{name}_*.deb"), None) for name in names}
        lacking = [name for name, file in files.items() if file is None]
        if lacking:
            raise UnavailableError(f"apt-get downloaded no {', '.join(lacking)}")
        return {name: file for name, file in files.items() if file is not None}


def _source(own: str, release: str) -> str:
    """The line of a sources.list for ``release``, on the mirror that gives ``own`` its main component."""
    form = "$(REPO_URI)|$(RELEASE)|$(SOURCESENTRY)"
    command = ["apt-get", "indextargets", "--format", form, "Created-By: Packages", "Component: main"]
    for line in _run(command, {**os.environ, "LC_ALL": "C"}).splitlines():
        uri, _, rest = line.partition("|")
        found, _, entry = rest.partition("|")
        if found == own:
            return f"deb {_key(Path(entry.rpartition(':')[0]))}{uri} {release} {_COMPONENTS}\n"
    raise UnavailableError(f"apt knows no mirror of Debian {own} (/etc/apt/sources.list)")


def _key(sources: Path) -> str:
    """``[signed-by=...] `` as the machine's own entry has it, "" where it names no key."""
    try:
        text = sources.read_text()
    except OSError:
        return ""
    found = re.search(r"^Signed-By:\s*(/\S+)|signed-by=([^\s\]]+)", text, re.MULTILINE | re.IGNORECASE)
    return f"[signed-by={found[1] or found[2]}] " if found else ""


def _run(command: list[str], environment: dict[str, str] | None, folder: Path | None = None) -> str:
    try:
        ended = subprocess.run(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{' '.join(command[:3])} did not end within {_SECONDS:g} s") from error
    except OSError as error:
        raise UnavailableError(f"{command[0]} cannot be run ({error.strerror})") from error
    if ended.returncode:
        said = [line for line in ended.stderr.splitlines() if line.startswith(("E:", "W:"))]
        words = " ".join(said[:2]) or ended.stderr.strip()[-300:] or f"exit status {ended.returncode}"
        raise UnavailableError(f"{' '.join(command[:3])}: {words}")
    return ended.stdout
