"""The metadata of measured launches: what the tool says of them, and what only the agent knows."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from assay_agent.execution.environment import MeasuredGPU
from assay_agent.profilers.gang import gang_devices
from assay_core.records.work import Work
from assay_sampling.launches.table import (
    Device,
    LaunchBatch,
    TableMetadata,
    origin_of,
    table_metadata,
    with_metadata,
)


def labelled(schema: pa.Schema, work: Work, gpu: MeasuredGPU, device: Device, tool_version: str) -> pa.Schema:
    """The schema of what a tool measured, with what the agent knows: ``device`` as the run had it, condition,
    mark."""
    tool_metadata = table_metadata(schema)
    ordinals = [each.index for each in tool_metadata.devices] or [gpu.device.index]
    devices = gang_devices(gpu, work) or tuple(replace(device, index=ordinal) for ordinal in ordinals)
    metadata = TableMetadata(
        level=work.table_level,
        origin=origin_of(synthetic=gpu.synthetic),
        condition=work.condition,
        devices=devices,
        format=tool_metadata.format,
        tool=tool_metadata.tool,
        tool_version=tool_version,
        units_assumed=tool_metadata.units_assumed,
        driver_version=gpu.driver_version,
    )
    return with_metadata(schema, metadata)


def relabelled(batch: LaunchBatch, schema: pa.Schema) -> LaunchBatch:
    """The batch with another schema's metadata."""
    return LaunchBatch(pa.RecordBatch.from_arrays(batch.records.columns, schema=schema), batch.new_names)
