#include "calls.h"

#include <stddef.h>

const CUpti_CallbackId calls_watched[] = {
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernelMultiDevice,
    CUPTI_DRIVER_TRACE_CBID_cuLaunch,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchGrid,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchGridAsync,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
    CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture,
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2,
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCaptureToGraph,
    CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCaptureToGraph_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuGraphAddChildGraphNode,
    CUPTI_DRIVER_TRACE_CBID_cuGraphNodeSetEnabled,
    CUPTI_DRIVER_TRACE_CBID_cuCtxDestroy,
    CUPTI_DRIVER_TRACE_CBID_cuCtxDestroy_v2,
    CUPTI_DRIVER_TRACE_CBID_cuCtxDetach,
    CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxReset,
    CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxReset_v2,
    CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRelease,
    CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRelease_v2,
};

const unsigned calls_watched_count = sizeof calls_watched / sizeof *calls_watched;

/* A call without a configuration fails, and must fail in the driver, not here. */
static CUstream stream_of_config(const CUlaunchConfig *config)
{
    return config ? config->hStream : NULL;
}

static struct call launch(uint32_t kernels, CUstream stream)
{
    return (struct call){.kind = CALL_LAUNCH, .kernels = kernels, .stream = stream};
}

static struct call graph_launch(CUgraphExec executable, CUstream stream)
{
    return (struct call){.kind = CALL_GRAPH, .executable = executable, .stream = stream};
}

/* Suffixes of functions whose default stream is the thread's. */
static struct call per_thread(struct call call)
{
    if (!call.stream) call.stream = CU_STREAM_PER_THREAD;
    return call;
}

static struct call launch_call(CUpti_CallbackId id, const void *parameters)
{
    switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel:
        return launch(1, ((const cuLaunchKernel_params *)parameters)->hStream);
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz:
        return per_thread(launch(1, ((const cuLaunchKernel_ptsz_params *)parameters)->hStream));
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx:
        return launch(1, stream_of_config(((const cuLaunchKernelEx_params *)parameters)->config));
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz:
        return per_thread(launch(1, stream_of_config(((const cuLaunchKernelEx_ptsz_params *)parameters)->config)));
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel:
        return launch(1, ((const cuLaunchCooperativeKernel_params *)parameters)->hStream);
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz:
        return per_thread(launch(1, ((const cuLaunchCooperativeKernel_ptsz_params *)parameters)->hStream));
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernelMultiDevice:
        return launch(((const cuLaunchCooperativeKernelMultiDevice_params *)parameters)->numDevices, NULL);
    case CUPTI_DRIVER_TRACE_CBID_cuLaunch:
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchGrid: return launch(1, NULL);
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchGridAsync:
        return launch(1, ((const cuLaunchGridAsync_params *)parameters)->hStream);
    default: return (struct call){.kind = CALL_OTHER};
    }
}

static struct call graph_call(CUpti_CallbackId id, const void *parameters)
{
    switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch: {
        const cuGraphLaunch_params *given = parameters;
        return graph_launch(given->hGraph, given->hStream);
    }
    case CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz: {
        const cuGraphLaunch_ptsz_params *given = parameters;
        return per_thread(graph_launch(given->hGraphExec, given->hStream));
    }
    case CUPTI_DRIVER_TRACE_CBID_cuGraphAddChildGraphNode: {
        const cuGraphAddChildGraphNode_params *given = parameters;
        return (struct call){.kind = CALL_CHILD, .node = given->phGraphNode, .child = given->childGraph};
    }
    case CUPTI_DRIVER_TRACE_CBID_cuGraphNodeSetEnabled:
        return (struct call){.kind = CALL_SWITCH,
                             .executable = ((const cuGraphNodeSetEnabled_params *)parameters)->hGraphExec};
    default: return launch_call(id, parameters);
    }
}

static struct call reset(CUdevice device)
{
    return (struct call){.kind = CALL_RESET, .device = (uint32_t)device};
}

static struct call destroyed(CUcontext context)
{
    return (struct call){.kind = CALL_DESTROY, .context = context};
}

struct call call_of(CUpti_CallbackId id, const void *parameters)
{
    switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture:
    case CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_ptsz:
    case CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2:
    case CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2_ptsz:
    case CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCaptureToGraph:
    case CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCaptureToGraph_ptsz: return (struct call){.kind = CALL_CAPTURE};
    case CUPTI_DRIVER_TRACE_CBID_cuCtxDestroy: return destroyed(((const cuCtxDestroy_params *)parameters)->ctx);
    case CUPTI_DRIVER_TRACE_CBID_cuCtxDestroy_v2: return destroyed(((const cuCtxDestroy_v2_params *)parameters)->ctx);
    case CUPTI_DRIVER_TRACE_CBID_cuCtxDetach: return destroyed(((const cuCtxDetach_params *)parameters)->ctx);
    case CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxReset:
        return reset(((const cuDevicePrimaryCtxReset_params *)parameters)->dev);
    case CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxReset_v2:
        return reset(((const cuDevicePrimaryCtxReset_v2_params *)parameters)->dev);
    case CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRelease:
        return reset(((const cuDevicePrimaryCtxRelease_params *)parameters)->dev);
    case CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxRelease_v2:
        return reset(((const cuDevicePrimaryCtxRelease_v2_params *)parameters)->dev);
    default: return graph_call(id, parameters);
    }
}
