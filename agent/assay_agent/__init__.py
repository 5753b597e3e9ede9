"""The agent: drives profilers on a GPU box and streams launch records."""
