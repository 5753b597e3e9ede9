"""Our CUPTI tracer: the C library injected into a workload, and the agent's end of its socket."""
