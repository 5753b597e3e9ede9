"""The Python API, for notebooks and scripts, in the words of the command line.

    from assay_client import api

    api.inspect("profile.csv")["launches"]
    selection = api.select("pks", "profile.csv", parameters={"features": "artifact12"})
    api.evaluate(selection, "other_gpu.csv")["error_percent"]
    api.compare("profile.csv")["methods"]
    api.classify("window.csv", "whole.sqlite").labels
    api.evaluate_relative(selection, "v100.csv", "a100.csv")["speedup_predicted"]

    with api.Client() as lab:
        campaign_id = lab.submit("campaign.yaml")
        for status in lab.watch(campaign_id):
            print(status["state"], status["runs_done"])
        lab.report(campaign_id)

Everything raises the typed errors of :mod:`assay_sampling.errors` and prints nothing.
"""

from __future__ import annotations

from assay_client.recordings.analyses import (
    evaluate,
    evaluate_relative,
    inspect,
    load_selection,
    read_profile,
    select,
)
from assay_client.recordings.classified import classify_files as classify
from assay_client.recordings.comparing import compare_files as compare
from assay_client.remote.client import Client

__all__ = [
    "Client",
    "classify",
    "compare",
    "evaluate",
    "evaluate_relative",
    "inspect",
    "load_selection",
    "read_profile",
    "select",
]
