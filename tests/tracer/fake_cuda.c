/* The CUDA driver of the fake CUPTI: contexts, launch calls and graphs, with the callbacks that CUPTI makes of them.
 *
 *   FAKE_CUPTI_FIRST   the first correlation ID
 *   FAKE_CUDA_VERSION  what cuDriverGetVersion says (default: 13000)
 *   FAKE_CUDA_LATE_EVERY  every so many launch calls are told 20 ms after they got their number, as if the system
 *                      had stopped their thread
 */
#define _GNU_SOURCE
#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_cupti.h"
#include "fake_records.h"

#define VISIBLE __attribute__((visibility("default")))
#define CAPTURING_STREAM ((CUstream)0x1000)
#define MOST_CONTEXTS 64u
#define MOST_NODES 4096u

static struct fake_context contexts[MOST_CONTEXTS];
static unsigned contexts_made;
static struct fake_context *primary[MOST_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread unsigned this_device;
static __thread CUcontext set_context; /* of a thread that chose one itself, as the tracer's does */
static uint32_t next_correlation, late_every;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void set_up(void)
{
    next_correlation = fake_switch("FAKE_CUPTI_FIRST", 1);
    late_every = fake_switch("FAKE_CUDA_LATE_EVERY", 0);
}

void fake_init(void)
{
    fake_records_begin();
    pthread_once(&once, set_up);
    const char *path = getenv("CUDA_INJECTION64_PATH");
    if (!path || !*path) return;
    void *library = dlopen(path, RTLD_NOW);
    int (*initialize)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
    if (initialize)
        initialize();
    else
        fprintf(stderr, "fake CUDA: %s\n", dlerror());
}

/* ---- callbacks ---- */

static void of_api(CUpti_ApiCallbackSite site, CUpti_CallbackId id, uint32_t correlation, const void *parameters,
                   CUresult *result)
{
    CUpti_CallbackData data;
    memset(&data, 0, sizeof data);
    data.callbackSite = site;
    data.functionParams = parameters;
    data.functionReturnValue = site == CUPTI_API_EXIT ? result : NULL;
    data.correlationId = correlation;
    fake_call_back(CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
}

static uint32_t entered(CUpti_CallbackId id, const void *parameters)
{
    uint32_t correlation = __atomic_fetch_add(&next_correlation, 1, __ATOMIC_RELAXED);
    of_api(CUPTI_API_ENTER, id, correlation, parameters, NULL);
    return correlation;
}

static void left(CUpti_CallbackId id, uint32_t correlation, const void *parameters)
{
    CUresult result = CUDA_SUCCESS;
    of_api(CUPTI_API_EXIT, id, correlation, parameters, &result);
}

static void of_context(CUpti_CallbackId id, struct fake_context *context)
{
    CUpti_ResourceData data;
    memset(&data, 0, sizeof data);
    data.context = (CUcontext)context;
    fake_call_back(CUPTI_CB_DOMAIN_RESOURCE, id, &data);
}

static void of_graph(CUpti_CallbackId id, CUpti_GraphData graph)
{
    CUpti_ResourceData data;
    memset(&data, 0, sizeof data);
    data.resourceDescriptor = &graph;
    fake_call_back(CUPTI_CB_DOMAIN_RESOURCE, id, &data);
}

/* ---- contexts ---- */

void fake_use_device(unsigned device)
{
    this_device = device % MOST_DEVICES;
}

static struct fake_context *own_context(void)
{
    struct fake_context *made = NULL;
    pthread_mutex_lock(&lock);
    struct fake_context *context = primary[this_device];
    if (!context) {
        if (contexts_made >= MOST_CONTEXTS) abort();
        context = made = &contexts[contexts_made++];
        *context = (struct fake_context){.device = this_device, .id = contexts_made, .alive = 1};
        primary[this_device] = context;
    }
    pthread_mutex_unlock(&lock);
    if (made) of_context(CUPTI_CBID_RESOURCE_CONTEXT_CREATED, made);
    return context;
}

void fake_reset(void)
{
    cuDevicePrimaryCtxReset_v2_params parameters = {.dev = (CUdevice)this_device};
    uint32_t correlation = entered(CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxReset_v2, &parameters);
    pthread_mutex_lock(&lock);
    struct fake_context *context = primary[this_device];
    primary[this_device] = NULL;
    if (context) __atomic_store_n(&context->alive, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&lock);
    if (context) {
        of_context(CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING, context);
        fake_lose(context);
    }
    left(CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxReset_v2, correlation, &parameters);
}

#undef cuCtxSetCurrent
VISIBLE CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
    set_context = context;
    return CUDA_SUCCESS;
}

#undef cuCtxSynchronize
VISIBLE CUresult CUDAAPI cuCtxSynchronize(void)
{
    struct fake_context *context = (struct fake_context *)(void *)set_context;
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    if (!__atomic_load_n(&context->alive, __ATOMIC_RELAXED)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    fake_wait_for(context);
    return CUDA_SUCCESS;
}

#undef cuDriverGetVersion
VISIBLE CUresult CUDAAPI cuDriverGetVersion(int *version)
{
    *version = (int)fake_switch("FAKE_CUDA_VERSION", 13000);
    return CUDA_SUCCESS;
}

#undef cuStreamIsCapturing
VISIBLE CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    *status = stream == CAPTURING_STREAM ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

/* ---- graphs ---- */

static char made_up[8 * MOST_NODES]; /* pointers to these are the handles of graphs and nodes */
static unsigned handles;
static CUgraphExec executable;
static uint32_t graph_kernels;

static void *handle(void)
{
    unsigned number = __atomic_fetch_add(&handles, 1, __ATOMIC_RELAXED);
    if (number >= sizeof made_up) abort();
    return &made_up[number];
}

static CUgraphNode make_node(CUgraph graph, CUgraphNodeType type)
{
    CUgraphNode node = handle();
    of_graph(CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, (CUpti_GraphData){.graph = graph, .node = node, .nodeType = type});
    return node;
}

static CUgraph make_graph(void)
{
    CUgraph graph = handle();
    of_graph(CUPTI_CBID_RESOURCE_GRAPH_CREATED, (CUpti_GraphData){.graph = graph});
    return graph;
}

struct nodes {
    CUgraphNode node[MOST_NODES];
    CUgraphNodeType type[MOST_NODES];
    unsigned count;
};

static void add_node(struct nodes *nodes, CUgraph graph, CUgraphNodeType type)
{
    nodes->type[nodes->count] = type;
    nodes->node[nodes->count++] = make_node(graph, type);
}

/* As CUPTI tells it of NVIDIA's sample cuda_graphs_trace: each node of a copy is created, and then cloned. */
static CUgraph cloned(CUgraph original, const struct nodes *nodes)
{
    CUgraph copy = handle();
    of_graph(CUPTI_CBID_RESOURCE_GRAPH_CLONED, (CUpti_GraphData){.graph = copy, .originalGraph = original});
    for (unsigned i = 0; i < nodes->count; i++) {
        CUgraphNode node = make_node(copy, nodes->type[i]);
        CUpti_GraphData data = {.graph = copy, .originalGraph = original, .node = node,
                                .originalNode = nodes->node[i], .nodeType = nodes->type[i]};
        of_graph(CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, data);
    }
    return copy;
}

static void add_child(struct nodes *nodes, CUgraph graph, uint32_t kernels)
{
    static struct nodes children;
    children.count = 0;
    CUgraph child = make_graph();
    for (uint32_t i = 0; i < kernels; i++) add_node(&children, child, CU_GRAPH_NODE_TYPE_KERNEL);
    CUgraphNode node = NULL;
    cuGraphAddChildGraphNode_params parameters = {.phGraphNode = &node, .hGraph = graph, .childGraph = child};
    uint32_t correlation = entered(CUPTI_DRIVER_TRACE_CBID_cuGraphAddChildGraphNode, &parameters);
    cloned(child, &children);
    add_node(nodes, graph, CU_GRAPH_NODE_TYPE_GRAPH);
    node = nodes->node[nodes->count - 1];
    left(CUPTI_DRIVER_TRACE_CBID_cuGraphAddChildGraphNode, correlation, &parameters);
}

static void destroy(CUgraph graph, const struct nodes *nodes)
{
    for (unsigned i = 0; i < nodes->count; i++) {
        CUpti_GraphData data = {.graph = graph, .node = nodes->node[i], .nodeType = nodes->type[i]};
        of_graph(CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING, data);
    }
    of_graph(CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING, (CUpti_GraphData){.graph = graph});
}

void fake_make_graph(enum fake_graph kind, uint32_t kernels)
{
    static struct nodes nodes;
    CUgraph graph = make_graph();
    uint32_t own = kind == FAKE_NESTED ? kernels - kernels / 2 : kernels;
    add_node(&nodes, graph, CU_GRAPH_NODE_TYPE_MEMCPY);
    for (uint32_t i = 0; kind != FAKE_CONDITIONAL && i < own; i++) add_node(&nodes, graph, CU_GRAPH_NODE_TYPE_KERNEL);
    if (kind == FAKE_NESTED) add_child(&nodes, graph, kernels / 2);
    if (kind == FAKE_CONDITIONAL) add_node(&nodes, graph, CU_GRAPH_NODE_TYPE_CONDITIONAL);
    add_node(&nodes, graph, CU_GRAPH_NODE_TYPE_MEMSET);
    add_node(&nodes, graph, CU_GRAPH_NODE_TYPE_MEMCPY);
    CUgraphExec made = handle();
    of_graph(CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATE_STARTING, (CUpti_GraphData){.graph = graph});
    cloned(graph, &nodes);
    of_graph(CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED, (CUpti_GraphData){.graph = graph, .graphExec = made});
    graph_kernels = kernels;
    if (kind == FAKE_DISABLED) {
        cuGraphNodeSetEnabled_params parameters = {.hGraphExec = made, .hNode = nodes.node[kernels], .isEnabled = 0};
        uint32_t correlation = entered(CUPTI_DRIVER_TRACE_CBID_cuGraphNodeSetEnabled, &parameters);
        left(CUPTI_DRIVER_TRACE_CBID_cuGraphNodeSetEnabled, correlation, &parameters);
        graph_kernels--;
    }
    destroy(graph, &nodes);
    executable = made;
}

void fake_begin_capture(void)
{
    uint32_t correlation = entered(CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2, NULL);
    left(CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2, correlation, NULL);
}

/* ---- launch calls ---- */

uint32_t fake_call(fake_rule rule)
{
    struct fake_context *context = own_context();
    uint32_t correlation = __atomic_fetch_add(&next_correlation, 1, __ATOMIC_RELAXED);
    if (late_every && correlation % late_every == 0) usleep(20000);
    enum fake_call kind = rule(correlation);
    CUresult result = kind == FAKE_FAILING ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    CUstream stream = kind == FAKE_CAPTURED ? CAPTURING_STREAM : (CUstream)(uintptr_t)(0x2000 + correlation % 3);
    cuLaunchKernel_params kernel_parameters = {.hStream = stream};
    cuGraphLaunch_params graph_parameters = {.hGraph = executable, .hStream = stream};
    const void *parameters = kind == FAKE_GRAPH ? (const void *)&graph_parameters : (const void *)&kernel_parameters;
    CUpti_CallbackId id
        = kind == FAKE_GRAPH ? CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch : CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel;
    of_api(CUPTI_API_ENTER, id, correlation, parameters, &result);
    if (kind == FAKE_KERNEL) fake_kernel_begins(context, correlation, 0);
    for (uint32_t node = 1; kind == FAKE_GRAPH && node <= graph_kernels; node++)
        fake_kernel_begins(context, correlation, node);
    of_api(CUPTI_API_EXIT, id, correlation, parameters, &result);
    return correlation;
}
