"""The Podman that the tests of images share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.images.podman import TREE, TREE_PACKAGES, Podman, why_not


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    """Podman in the cache folder with a Debian tree; containers are removed at the end, images stay."""
    reason = why_not(bool(os.environ.get("ASSAY_IMAGES")))
    if reason:
        pytest.skip(reason)
    own = Podman(Path(os.environ["ASSAY_IMAGES"]))
    own.import_tree(TREE, TREE_PACKAGES)
    yield own
    own.run("podman", "rm", "--all", "--force", "--time", "0", check=False)
    own.run("podman", "image", "prune", "--force", check=False)
