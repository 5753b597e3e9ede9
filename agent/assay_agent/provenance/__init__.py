"""Facts of an attempt besides the GPU: tools, loaded libraries, active conditions."""
