"""Background threads that repeat a step."""
