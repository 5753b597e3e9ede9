/* The workload's side of the fake CUPTI: what a CUDA driver would do. Everything it records is made up. */
#ifndef ASSAY_TESTS_FAKE_CUPTI_H
#define ASSAY_TESTS_FAKE_CUPTI_H

#include <stdint.h>

/* As cuInit: loads the library of CUDA_INJECTION64_PATH and calls its InitializeInjection. */
void fake_init(void);

/* Make the context of a device (0 to 3) the thread's own; it is created at its first use. Default: device 0. */
void fake_use_device(unsigned device);

/* As cudaDeviceReset of the thread's device: kernels that run are killed, and so are records not handed over. */
void fake_reset(void);

enum fake_call { FAKE_KERNEL, FAKE_GRAPH, FAKE_CAPTURED, FAKE_FAILING };

/* Begin to capture a stream: calls of FAKE_CAPTURED go there. */
void fake_begin_capture(void);

/* What an executable graph is made of, beside two copies and a fill. */
enum fake_graph { FAKE_PLAIN, FAKE_NESTED, FAKE_CONDITIONAL, FAKE_DISABLED };

/* Make, instantiate and destroy a graph; graph launches are of it from then on. A nested one has half of its kernels in
 * a child graph, a conditional one runs a body that has as many kernels, of a disabled one the last kernel is. */
void fake_make_graph(enum fake_graph kind, uint32_t kernels);

/* What call a correlation ID stands for is the caller's rule. */
typedef enum fake_call (*fake_rule)(uint32_t correlation);

/* One API call; returns its correlation ID. */
uint32_t fake_call(fake_rule rule);

/* A kernel as the caller wants it recorded; the fake keeps its name. */
struct fake_kernel {
    const char *name;
    uint64_t start_ns, end_ns;
    int32_t grid[3], block[3], registers, static_bytes, dynamic_bytes;
    uint32_t stream;
};

/* What this thread's next launch calls launch, in place of kernels made up of the correlation ID: one kernel, or one for
 * each node of a graph. NULL: made up again. */
void fake_describe(const struct fake_kernel *kernels);

/* Something that happens to this thread while CUPTI has its lock, such as a signal. */
void fake_within(void (*during)(void));

/* Records that were handed over to buffers, and records that found none. */
void fake_counts(uint64_t *recorded, uint64_t *dropped);

#endif
