"""What an attempt's numbers depend on besides the GPU: tools, loaded libraries, conditions in force."""
