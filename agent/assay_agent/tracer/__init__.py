"""Our own CUPTI tracer: the C library that is injected into a workload, and the agent's end of its socket."""
