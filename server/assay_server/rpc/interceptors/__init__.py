"""The two interceptors before every call: limits of each caller, then who calls and what they may do."""
