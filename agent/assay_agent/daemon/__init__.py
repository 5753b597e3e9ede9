"""The agent process: its slots, their attempts, and the state that outlives it."""
