"""Background threads: one repeats a step, one handles items in batches."""
