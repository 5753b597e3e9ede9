"""One selection on several real GPUs: ``make bench-silicon``, which writes docs/silicon.md."""
