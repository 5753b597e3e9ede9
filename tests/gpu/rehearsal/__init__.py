"""The proof's campaigns without a GPU: workloads of a virtual GPU, whose light runs our own tracer measures.

Light runs go the way that they go on a GPU: the agent injects the tracer into a program, the tracer asks
CUPTI, and the agent takes what it sends. Program and CUPTI are made up; everything is synthetic.
"""
