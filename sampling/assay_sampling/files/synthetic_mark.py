"""The mark of data that no silicon produced, in files of the tools' own formats.

Generators and stand-ins write it, readers find it, and nothing removes it:

- Nsight Systems export: a row ``ASSAY_SYNTHETIC`` in the table of meta-data, with any value.
- Nsight Compute CSV: the field "Host Name" of a launch is ``ASSAY_SYNTHETIC``, or a line of the profiler
  (it begins with ``==``) before the header holds it.
- Standard output of Accel-Sim: a line begins with it. The log stays one of a simulator, with a note.
- Our own Parquet files: ``synthetic`` in the table's metadata.
"""

SYNTHETIC_MARK = "ASSAY_SYNTHETIC"
