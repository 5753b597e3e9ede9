"""The command that adds a part of Assay to this installation."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from assay_sampling import installation


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation.shutil, "which", lambda _: str(Path(sys.executable).with_name("pip")))


def _installed(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    found = SimpleNamespace(read_text=lambda _: text)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: found)


@pytest.mark.usefixtures("pip")
@pytest.mark.parametrize(("editable", "flag"), [(True, "-e "), (False, "")])
def test_a_checkout_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, editable: bool, flag: str
) -> None:
    folder = tmp_path / "a checkout"
    folder.mkdir()
    origin = {"url": folder.as_uri(), "dir_info": {"editable": editable}}
    _installed(monkeypatch, json.dumps(origin))
    assert installation.install_command("agent") == "pip install 'assay-gpu[agent]'"
    (folder / "pyproject.toml").touch()
    assert installation.install_command("agent") == f"pip install {flag}'{folder}[agent]'"


@pytest.mark.usefixtures("pip")
@pytest.mark.parametrize("text", [None, "", "{}", "[]", "not JSON", '{"url": "https://host/a.whl"}'])
def test_other_installations_name_the_distribution(monkeypatch: pytest.MonkeyPatch, text: str | None) -> None:
    _installed(monkeypatch, text)
    assert installation.install_command("server") == "pip install 'assay-gpu[server]'"


def test_another_pip_on_the_path_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    monkeypatch.setattr(installation.shutil, "which", lambda _: "/usr/bin/pip")
    assert installation.install_command("all") == f"{sys.executable} -m pip install 'assay-gpu[all]'"
