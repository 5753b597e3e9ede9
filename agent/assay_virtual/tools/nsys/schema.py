"""Tables of Nsight Systems' SQLite export in two generations: 2.7.0 (2021.5) and 3.7.2 (2023.4).

Names, types and order of the columns are those of a recording of 2021.5 (2.7.0) and of an export by
2023.4.4 (3.7.2); tables missing there follow the documentation of later versions.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Generation:
    """One generation of the schema: its version, the names of the tables about the export and capture."""

    schema_version: str
    export_table: str
    capture_table: str | None
    modern: bool


GENERATION_2021 = Generation("2.7.0", "EXPORT_META_DATA", None, modern=False)
GENERATION_2023 = Generation("3.7.2", "META_DATA_EXPORT", "META_DATA_CAPTURE", modern=True)

# A trailing "!" is NOT NULL, a leading "%" REAL, a leading "$" TEXT; all others are INTEGER.
_KERNEL = """start! end! deviceId! contextId! streamId! correlationId globalPid demangledName! shortName!
    mangledName launchType cacheConfig registersPerThread! gridX! gridY! gridZ! blockX! blockY! blockZ!
    staticSharedMemory! dynamicSharedMemory! localMemoryPerThread! localMemoryTotal! gridId!
    sharedMemoryExecuted graphNodeId sharedMemoryLimitConfig"""
_TABLES = {
    "StringIds": "id! $value!",
    "ThreadNames": "nameId! priority globalTid",
    "PROCESSES": "globalPid pid $name",
    "ANALYSIS_DETAILS": "globalVid! duration! startTime! stopTime!",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs $utcTime $localTime",
    "TARGET_INFO_SYSTEM_ENV": "globalVid! $devStateName! $name! nameEnum! $value!",
    "TARGET_INFO_GPU": """vmId! id! $name $busLocation isDiscrete l2CacheSize totalMemory memoryBandwidth
        clockRate smCount pwGpuId $uuid luid $chipName cuDevice $ctxswDevPath $ctrlDevPath revision nodeMask
        constantMemory maxIPC maxRegistersPerBlock maxShmemPerBlock maxShmemPerBlockOptin maxShmemPerSm
        maxRegistersPerSm threadsPerWarp asyncEngines maxWarpsPerSm maxBlocksPerSm maxThreadsPerBlock
        maxBlockDimX maxBlockDimY maxBlockDimZ maxGridDimX maxGridDimY maxGridDimZ computeMajor computeMinor
        smMajor smMinor""",
    "CUPTI_ACTIVITY_KIND_RUNTIME": """start! end! eventClass! globalTid correlationId nameId! returnValue!
        callchainId""",
    "CUPTI_ACTIVITY_KIND_KERNEL": _KERNEL,
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": """start! end! deviceId! contextId! streamId! correlationId globalPid
        graphId! graphExecId!""",
    "NVTX_EVENTS": """start! end eventType! rangeId category color $text globalTid endGlobalTid textId
        domainId uint64Value int64Value %doubleValue uint32Value int32Value %floatValue jsonTextId
        $jsonText""",
    "DIAGNOSTIC_EVENT": "timestamp! timestampType! source! severity! $text! globalPid",
}
_META = "$name! $value"


def columns_of(table: str, generation: Generation) -> tuple[str, ...]:
    """Names of a table's columns, in order."""
    return tuple(spec.strip("%$!") for spec in _specs(table, generation))


def create_table(table: str, generation: Generation) -> str:
    """The statement that makes a table."""
    columns = []
    for spec in _specs(table, generation):
        kind = {"%": "REAL", "$": "TEXT"}.get(spec[0], "INTEGER")
        null = "   NOT NULL" if spec.endswith("!") else ""
        key = "   PRIMARY KEY" if (table, spec) == ("StringIds", "id!") else ""
        columns.append(f"    {spec.strip('%$!'):<27} {kind}{null}{key}")
    return f"CREATE TABLE {table} (\n" + ",\n".join(columns) + "\n)"


def _specs(table: str, generation: Generation) -> list[str]:
    specs = _TABLES.get(table, _META).split()
    if table == "CUPTI_ACTIVITY_KIND_KERNEL" and generation.modern:
        specs.insert(specs.index("streamId!"), "greenContextId")
    return specs
