"""Within a launch: when its simulation may stop, and what its cycles then will be."""
