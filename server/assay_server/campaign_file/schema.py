"""The JSON schema of the campaign file, with which editors complete and check it."""

from __future__ import annotations

from typing import Any

from assay_server.campaign_file.spec import Campaign


def campaign_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a campaign file, as people write it.

    It knows keys, types and ranges; :mod:`assay_server.campaign_file.reading` checks rules between fields.
    """
    schema = Campaign.model_json_schema()
    definitions = schema["$defs"]
    method = definitions["MethodSpec"]["description"]
    # In a file a method is its name, or its name with parameters; the model has them as two fields.
    definitions["MethodSpec"] = {
        "description": f"{method} For example: systematic, or random: {{launches: 100}}.",
        "anyOf": [
            {"type": "string"},
            {
                "type": "object",
                "minProperties": 1,
                "maxProperties": 1,
                "additionalProperties": {"anyOf": [{"type": "object"}, {"type": "null"}]},
            },
        ],
    }
    features = definitions["DetailedSpec"]["properties"]["features"]
    definitions["DetailedSpec"]["properties"]["features"] = {"anyOf": [{"type": "string"}, features]}
    # "none" in a file is None in the model.
    detailed = schema["properties"]["detailed"]
    detailed["anyOf"] = [{"$ref": "#/$defs/DetailedSpec"}, {"const": "none"}]
    definitions["AnalysisSpec"]["properties"]["methods"].pop("default", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Assay campaign file",
        "description": "Which workloads run or were recorded on which kinds of GPU, and their analysis.",
    }
