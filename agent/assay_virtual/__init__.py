"""A virtual GPU: a documented model that replaces a real GPU on boxes without one.

``workloads.loading.load_workload(path)`` reads a workload file, ``model.gpu.VirtualGPU(kind)`` executes it,
and ``tools`` are stand-ins for Nsight Compute and Nsight Systems. An agent reaches all of it through
``gpu_models``. All its results are synthetic and marked as such. docs/virtual-gpu.md describes the model.
"""
