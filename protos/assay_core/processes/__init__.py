"""Tools as processes of ours: run in order, within limits, and ended with everything that they started."""
