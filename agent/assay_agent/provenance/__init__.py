"""What an attempt's numbers rest on beside the GPU: its tools, the libraries it loaded, what was in force."""
