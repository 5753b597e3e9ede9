"""From a stream of batches to launches in memory, or on disk where they do not fit."""
