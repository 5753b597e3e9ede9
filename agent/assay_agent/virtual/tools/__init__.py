"""Stand-ins for Nsight Compute and Nsight Systems that profile workload files on a virtual GPU.

They accept the real tools' options, print what those print and fail as those fail, so that the code that
drives the real tools can be run, and tested, where there is no GPU. Every number they give comes from
:mod:`assay_agent.virtual` and is synthetic; their products say so.
"""

from assay_agent.virtual.tools.scripts import write_tool_scripts

__all__ = ["write_tool_scripts"]
