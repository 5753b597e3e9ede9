"""The other programs of the Compose lab as images: the public ones, or where no registry answers, stand-ins.

A stand-in has Debian's PostgreSQL, HAProxy and Prometheus, and the ``weed`` of the package index. It is named
as the public image in deploy/compose.yaml, so that the file runs as it is.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from tests.images.podman import ROOT, Podman

TREE = "localhost/assay-parts-tree"
_TREE_PACKAGES = "ca-certificates,haproxy,postgresql-15,prometheus"
_PULL_SECONDS = 600.0
_HERE = Path(__file__).resolve().parent


def public_images() -> list[str]:
    """The images in deploy/compose.yaml that are not ours."""
    named = re.findall(r"^ +image: \$\{\w+:-([^}]+)\}$", (ROOT / "deploy" / "compose.yaml").read_text(), re.M)
    return sorted({name for name in named if not name.startswith("localhost/")})


def have_parts(podman: Podman, weed: Path) -> list[str]:
    """Have all of them in the storage; returns those that are stand-ins."""
    wanted = [name for name in public_images() if not podman.has(name)]
    for name in wanted:
        done = podman.run("podman", "pull", "--quiet", name, check=False, seconds=_PULL_SECONDS)
        if done.returncode:  # the next would wait for the same registry
            break
    missing = [name for name in wanted if not podman.has(name)]
    if missing:
        _stand_in(podman, weed, missing)
    ours = podman.said("images", "--filter", "label=assay.stand-in", "--format", "{{.Repository}}:{{.Tag}}")
    return [name for name in public_images() if name in ours]


def _stand_in(podman: Podman, weed: Path, names: list[str]) -> None:
    podman.import_tree(TREE, _TREE_PACKAGES)
    with tempfile.TemporaryDirectory(prefix="assay-parts-") as folder:
        shutil.copy(weed, Path(folder, "weed"))
        shutil.copy(_HERE / "postgresql.sh", folder)
        podman.build_file(Path(folder), _HERE / "Containerfile.parts", names[0], [f"BASE={TREE}"])
    for name in names[1:]:
        podman.run("podman", "tag", names[0], name)
