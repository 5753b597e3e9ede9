"""The agent itself: its slots, their attempts, and its persistent state."""
