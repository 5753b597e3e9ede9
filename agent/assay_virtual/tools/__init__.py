"""Stand-ins for Nsight Compute and Nsight Systems that profile workload files on a virtual GPU.

They accept the real tools' options, print the same text and fail in the same ways, so that the code that
drives the real tools can be run, and tested, without a GPU. Every number comes from
:mod:`assay_virtual.model` and is synthetic; their output says so.
"""
