"""Podman as root, with storage, networks and settings of its own in a cache folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TREE = "localhost/assay-debian-tree"
TREE_PACKAGES = "python3-venv,ca-certificates,openssl"
# Makes builds comparable: every file of every layer gets this time (2001-09-09).
TIMESTAMP = "1000000000"
# Programs that Podman starts, by Debian's package: only recommended by its package, so they may be missing.
_HELPERS = {"netavark": "netavark", "aardvark-dns": "aardvark-dns"}
_HELPERS_AT = [
    Path(each, "podman") for each in ("/usr/local/libexec", "/usr/local/lib", "/usr/libexec", "/usr/lib")
]


def why_not(asked: bool) -> str:
    """Why Podman cannot be used here, ``asked`` for or not; "" if it can."""
    if not asked:
        return "'make test-image' and 'make test-compose' run it"
    if os.geteuid():
        return "mmdebstrap and Podman need root here"
    missing = [name for name in ("mmdebstrap", "podman", "runc", "iptables") if shutil.which(name) is None]
    for helper, package in _HELPERS.items():
        if not any((folder / helper).is_file() for folder in _HELPERS_AT):
            missing.append(package)
    return f"install Debian's {', '.join(missing)}" if missing else ""


class Podman:
    """Podman, and what it needs on a machine without CAP_SYS_RESOURCE and with both versions of cgroups.

    Args:
        cache: the folder of images, layers and settings.
        namespace: a network namespace (a file below /run/netns) that it works in; None: the machine's.
    """

    def __init__(self, cache: Path, namespace: Path | None = None) -> None:
        self.cache = cache.absolute()
        self.cache.mkdir(parents=True, exist_ok=True)
        storage, containers = self.cache / "storage.conf", self.cache / "containers.conf"
        # Without its mount over the folder of layers, which would stay and keep the cache from being removed.
        storage.write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{self.cache}/root"\nrunroot = "{self.cache}/run"\n'
            '[storage.options.overlay]\nskip_mount_home = "true"\n'
        )
        containers.write_text(
            '[containers]\ndefault_ulimits = ["nofile=20000:20000", "nproc=4000:4000"]\n'
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
            f'tmp_dir = "{self.cache}/tmp"\n'
            f'[network]\nnetwork_backend = "netavark"\nnetwork_config_dir = "{self.cache}/networks"\n'
        )
        self._settings = {"CONTAINERS_STORAGE_CONF": str(storage), "CONTAINERS_CONF": str(containers)}
        # nsenter and not "ip netns exec", which hides the cgroups.
        self._enter = [] if namespace is None else ["nsenter", f"--net={namespace}"]

    def run(
        self,
        *words: str,
        check: bool = True,
        environment: Mapping[str, str] | None = None,
        seconds: float | None = None,
        told: str | None = None,
        quiet: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run ``podman`` or what starts it in the checkout, with ``told`` as its input.

        Its messages stay in sight unless ``quiet``.
        """
        return subprocess.run(
            [*self._enter, *words], env={**os.environ, **self._settings, **(environment or {})}, cwd=ROOT,
            check=check, text=True, stdout=subprocess.PIPE, timeout=seconds, input=told,
            stderr=subprocess.DEVNULL if quiet else None,
        )  # fmt: skip

    def said(self, *words: str) -> list[str]:
        """The lines that ``podman WORDS`` prints."""
        return self.run("podman", *words).stdout.splitlines()

    def has(self, image: str) -> bool:
        """Whether an image is in the storage; raises if Podman cannot say."""
        asked = self.run("podman", "image", "exists", image, check=False)
        if asked.returncode > 1:
            asked.check_returncode()
        return asked.returncode == 0

    def import_tree(self, name: str, packages: str) -> None:
        """Make an image of a Debian tree with some packages, if it is not there; no registry is asked."""
        if self.has(name):
            return
        tree = self.cache / "tree.tar"
        self.run("mmdebstrap", "--variant=apt", "--mode=root", f"--include={packages}", "bookworm", str(tree))
        self.run("podman", "import", "--quiet", str(tree), name)
        tree.unlink()

    def build(self, target: str, *options: str, tag: str = "") -> str:
        """Build one of our images from the tree, without a network; returns its id."""
        made = self.run(
            "podman", "build", "--network", "none", "--format", "docker", "--layers", "--quiet",
            "--timestamp", TIMESTAMP, "--build-arg", f"BASE={TREE}", "--target", target,
            "--tag", tag or f"assay-{target}", "--file", "deploy/Containerfile", *options, ".",
        )  # fmt: skip
        return made.stdout.split()[-1]

    def build_file(self, folder: Path, file: Path, tag: str, arguments: Sequence[str] = ()) -> None:
        """Build an image from a folder and a Containerfile, without a network."""
        given = [word for argument in arguments for word in ("--build-arg", argument)]
        self.run(
            "podman", "build", "--network", "none", "--format", "docker", "--quiet", *given,
            "--tag", tag, "--file", str(file), str(folder),
        )  # fmt: skip
