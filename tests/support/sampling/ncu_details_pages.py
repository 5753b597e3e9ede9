"""Details pages of Nsight Compute, made up."""

from __future__ import annotations

from tests.support.sampling.reader_files import raw_line

FIELDS = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream",
          "Block Size", "Grid Size", "Device", "CC", "Section Name", "Metric Name", "Metric Unit",
          "Metric Value", "Rule Name", "Rule Type", "Rule Description")  # fmt: skip
METRICS = (
    ("Elapsed Cycles", "cycle", "1,234"),
    ("Duration", "us", "56.06"),
    ("SM Frequency", "Ghz", "1.13"),
    ("DRAM Throughput", "%", "23.97"),
    ("Executed Instructions", "inst", "14,103,936"),
    ("Static Shared Memory Per Block", "Kbyte/block", "1.02"),
    ("Dynamic Shared Memory Per Block", "byte/block", "16"),
    ("Registers Per Thread", "register/thread", "59"),
    ("Function Cache Configuration", "", "CachePreferNone"),
)
RULE = ("SpeedOfLight", "", "", "", "SOLBottleneck", "OPT", "Says much, and\nmore")


def launch_rows(
    identifier: int,
    metrics: tuple[tuple[str, str, str], ...] = METRICS,
    host: str = "127.0.0.1",
    pid: int = 7,
) -> list[str]:
    """The lines of one launch: its metrics, and a rule in between."""
    identity = [str(identifier), str(pid), "app", host, f"void k{identifier % 2}(int)", "1", "13",
                "(1024, 1, 1)", f"({identifier + 1}, 2, 1)", "0", "8.0"]  # fmt: skip
    lines = [raw_line([*identity, "Section", *metric, ""]) for metric in metrics]
    return [*lines[:2], raw_line([*identity, *RULE]), *lines[2:]]


def details_page(*launches: list[str], preamble: str = "") -> str:
    return preamble + raw_line(FIELDS) + "".join(line for rows in launches for line in rows)
