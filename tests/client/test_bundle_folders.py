"""Which folders a campaign file sends along, also where somebody wrote something else there."""

from __future__ import annotations

import pytest

from assay_client.remote.bundles import bundle_folders


def test_each_folder_is_found_once() -> None:
    text = "workloads: [{name: a, bundle: one}, {name: b, bundle: two}, {name: c, bundle: one}, {name: d}]"
    assert bundle_folders(text) == ["one", "two"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "workloads: 5",
        "workloads: {bundle: one}",
        "workloads: [5, {bundle: 7}, {bundle: ''}]",
        "a: [",
    ],
)
def test_a_file_that_the_server_will_refuse_names_no_folder(text: str) -> None:
    assert bundle_folders(text) == []
