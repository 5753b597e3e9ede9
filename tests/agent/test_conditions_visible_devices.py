"""CUDA_VISIBLE_DEVICES of the agent's own environment decides which GPUs it offers."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from assay_agent.daemon.places import installed_places
from assay_agent.gpus.visible_devices import hidden
from assay_core.records.machine import InstalledDevice, Inventory

ALIKE = [InstalledDevice(i, "NVIDIA A100", f"GPU-{i}a", "8.0", 108, 1) for i in range(3)]
MIXED = [replace(ALIKE[0], name="Tesla T4"), *ALIKE[1:]]


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        (None, [0, 1, 2]),
        ("0,1,2", [0, 1, 2]),
        ("1", [1]),
        ("2, 0", [0, 2]),
        ("GPU-1a", [1]),
        ("GPU-1", [1]),
        ("GPU-2a,0", [0, 2]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("1,-1,2", [1]),
        ("7", []),
        ("GPU-", []),
        ("MIG-00112233", []),
    ],
)
def test_the_gpus_that_it_names_are_offered(text: str | None, offered: list[int]) -> None:
    variables = {} if text is None else {"CUDA_VISIBLE_DEVICES": text}
    reasons = hidden(ALIKE, variables)
    assert [i for i, reason in enumerate(reasons) if not reason] == offered
    assert all("CUDA_VISIBLE_DEVICES=" in reason for reason in reasons if reason)


@pytest.mark.parametrize(
    ("text", "order", "offered"),
    [
        ("1", "", []),
        ("1", "FASTEST_FIRST", []),
        ("1", "PCI_BUS_ID", [1]),
        ("2,1,0", "", [0, 1, 2]),
        ("GPU-1a", "", [1]),
    ],
)
def test_an_ordinal_among_unlike_gpus_names_none_for_certain(
    text: str, order: str, offered: list[int]
) -> None:
    reasons = hidden(MIXED, {"CUDA_VISIBLE_DEVICES": text, "CUDA_DEVICE_ORDER": order})
    assert [i for i, reason in enumerate(reasons) if not reason] == offered
    assert offered or all("PCI_BUS_ID" in reason for reason in reasons)


def test_a_gpu_that_is_left_out_gets_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tool = tmp_path / "ncu"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    devices = (ALIKE[0], replace(ALIKE[1], left_out="it is partitioned"))
    with caplog.at_level(logging.WARNING):
        places = list(installed_places(Inventory("host", "0", 2, 1, devices), tmp_path))
    assert [place.slot.slot_id for place in places] == ["GPU-0a"]
    assert "GPU 1 takes no runs: it is partitioned" in caplog.text
