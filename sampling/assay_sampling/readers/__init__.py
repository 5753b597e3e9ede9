"""Readers of profile files: from a file to a stream of launch batches."""

from assay_sampling.readers.base import ProfileReader, ReadOptions, Recording
from assay_sampling.readers.inspection.recording import inspect_recording
from assay_sampling.readers.opening import open_recording, read_launches

__all__ = [
    "ProfileReader",
    "ReadOptions",
    "Recording",
    "inspect_recording",
    "open_recording",
    "read_launches",
]
