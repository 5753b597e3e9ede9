/* The frames that the tracer sends to the agent over its Unix stream socket, described in docs/tracer.md.
 *
 * A stream is a sequence of frames: a header of 16 bytes, then a payload. All integers are little-endian, all
 * structures have the same layout with and without packing. A name is sent before the first record that uses it.
 */
#ifndef ASSAY_TRACER_PROTOCOL_H
#define ASSAY_TRACER_PROTOCOL_H

#include <stdint.h>

#define ASSAY_PROTOCOL_VERSION 2u
#define ASSAY_PROGRAM_BYTES 64

enum assay_frame_type {
    ASSAY_FRAME_HELLO = 1,    /* struct assay_hello, the first frame */
    ASSAY_FRAME_NAME = 2,     /* struct assay_name, then its text in UTF-8 */
    ASSAY_FRAME_LAUNCHES = 3, /* count of struct assay_launch, in the order the calls began */
    ASSAY_FRAME_KERNELS = 4,  /* count of struct assay_kernel, in the order CUPTI gave them */
    ASSAY_FRAME_TOTALS = 5,   /* struct assay_totals, after each flush */
    ASSAY_FRAME_END = 6,      /* struct assay_totals, the last frame of a process that ended in order */
    ASSAY_FRAME_PROBLEM = 7   /* struct assay_problem, then its text: nothing is traced in this process */
};

struct assay_frame {
    uint32_t type;
    uint32_t count; /* records in the payload */
    uint64_t bytes; /* of the payload */
};

struct assay_hello {
    uint32_t protocol_version;
    uint32_t process;
    uint32_t parent_process;
    uint32_t cupti_version; /* of the library in use; 0 if none could be loaded */
    uint32_t known_version; /* the newest that this build knows */
    uint32_t layout;        /* n of the CUpti_ActivityKernel<n> that is read */
    uint32_t driver_version;
    uint32_t reserved;
    uint64_t cupti_ns; /* both clocks, read one after the other */
    uint64_t realtime_ns;
    char program[ASSAY_PROGRAM_BYTES]; /* name of the executable file, cut, null-terminated */
};

struct assay_name {
    uint32_t id;     /* from 1 */
    uint32_t parent; /* of an NVTX range: the id of the range around it, else 0 */
    uint32_t kind;   /* 0: mangled kernel name, 1: NVTX range */
    uint32_t bytes;
};

/* The order is CUPTI's correlation ID, widened to 64 bits: it grows with the calls of a process. */
#define ASSAY_KERNELS_UNKNOWN 0u       /* a graph launch whose kernels cannot be counted */
#define ASSAY_KERNELS_NONE 0xffffffffu /* the call failed and has no kernels */

struct assay_launch {
    uint64_t order;
    uint32_t range;   /* the id of the innermost NVTX range of the calling thread, 0: none */
    uint32_t kernels; /* how many kernel records belong to it */
};

#define ASSAY_KERNEL_DEVICE_LAUNCHED 1u

struct assay_kernel {
    uint64_t order;
    uint64_t start_ns;
    uint64_t end_ns;
    uint64_t graph_node; /* 0: not of a graph */
    uint32_t name;
    uint32_t graph;
    uint32_t device;
    uint32_t context;
    uint32_t stream;
    int32_t grid[3];
    int32_t block[3];
    uint32_t registers_per_thread;
    int32_t static_shared_bytes;
    int32_t dynamic_shared_bytes;
    uint32_t flags;
    uint32_t reserved;
};

struct assay_totals {
    uint64_t launches;        /* kernels whose launch call succeeded, outside graphs */
    uint64_t graph_launches;  /* graph launch calls that succeeded */
    uint64_t kernels;         /* kernel records sent, outside graphs */
    uint64_t graph_kernels;   /* kernel records sent, of graph nodes */
    uint64_t device_launched; /* kernel records sent, of kernels that kernels launched */
    uint64_t dropped_cupti;   /* records that CUPTI dropped, for lack of a buffer or another reason */
    uint64_t dropped_tracer;  /* records that could not be sent */
    uint64_t launches_unsent; /* launches that no struct assay_launch was sent for */
    uint64_t names_unsent;    /* NVTX ranges without a name, because too many were different */
    uint64_t waited_ns;       /* how long launches waited for the agent, of all threads together */
    uint64_t flushes;         /* how often CUPTI was flushed */
    uint64_t graph_kernels_expected;   /* kernels of graph launches, by CUPTI's graph nodes */
    uint64_t graph_launches_uncounted; /* graph launches for which that is unknown */
    uint64_t unsynchronised;           /* how often kernels had not ended in time, before a reset or the end */
};

struct assay_problem {
    uint32_t code; /* enum assay_problem_code */
    uint32_t cupti_result;
};

enum assay_problem_code {
    ASSAY_PROBLEM_NO_CUPTI = 1,     /* no libcupti could be loaded, or it lacks a function */
    ASSAY_PROBLEM_CUPTI_NEWER = 2,  /* its version is unknown to this build */
    ASSAY_PROBLEM_CUPTI_OLDER = 3,  /* older than the oldest layout */
    ASSAY_PROBLEM_LAYOUT = 4,       /* CUPTI reports another size of the kernel record */
    ASSAY_PROBLEM_SUBSCRIBED = 5,   /* another profiler has this process */
    ASSAY_PROBLEM_PRIVILEGES = 6,   /* CUPTI lacks privileges, or does not support this kind of machine */
    ASSAY_PROBLEM_CUPTI_FAILED = 7, /* any other error of CUPTI */
    ASSAY_PROBLEM_NO_MEMORY = 8,
    ASSAY_PROBLEM_MIXED_CALLS = 9 /* the process uses the second interface of CUPTI, the tracer the first */
};

_Static_assert(sizeof(struct assay_frame) == 16, "frame");
_Static_assert(sizeof(struct assay_hello) == 112, "hello");
_Static_assert(sizeof(struct assay_name) == 16, "name");
_Static_assert(sizeof(struct assay_launch) == 16, "launch");
_Static_assert(sizeof(struct assay_kernel) == 96, "kernel");
_Static_assert(sizeof(struct assay_totals) == 112, "totals");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the protocol is little-endian");

#endif
