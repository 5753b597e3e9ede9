/* The meaning of the API calls that CUPTI reports. */
#ifndef ASSAY_TRACER_CALLS_H
#define ASSAY_TRACER_CALLS_H

#include <cupti.h>
#include <stdint.h>

enum call_kind {
    CALL_OTHER,
    CALL_LAUNCH,  /* kernels into a stream */
    CALL_GRAPH,   /* an executable graph into a stream */
    CALL_CAPTURE, /* a stream begins to be captured */
    CALL_CHILD,   /* a graph becomes a node of another one */
    CALL_SWITCH,  /* a node of an executable graph is switched off or on */
    CALL_DESTROY, /* one context ends */
    CALL_RESET    /* the contexts of a device end */
};

struct call {
    enum call_kind kind;
    uint32_t kernels;
    CUstream stream;
    CUgraphExec executable;
    CUgraph child;
    const CUgraphNode *node;
    CUcontext context;
    uint32_t device;
};

/* The driver calls that are watched; CUPTI must know the first one. */
extern const CUpti_CallbackId calls_watched[];
extern const unsigned calls_watched_count;

/* The meaning of a callback of the driver's domain. */
struct call call_of(CUpti_CallbackId id, const void *parameters);

#endif
