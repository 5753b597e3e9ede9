/* The workload's side of the fake CUPTI: what a CUDA driver would do. Everything it records is made up. */
#ifndef ASSAY_TESTS_FAKE_CUPTI_H
#define ASSAY_TESTS_FAKE_CUPTI_H

#include <stdint.h>

/* As cuInit: loads the library of CUDA_INJECTION64_PATH and calls its InitializeInjection. */
void fake_init(void);

enum fake_call { FAKE_KERNEL, FAKE_GRAPH, FAKE_CAPTURED, FAKE_FAILING };

/* Begin to capture a stream: calls of FAKE_CAPTURED go there. */
void fake_begin_capture(void);

/* What call a correlation ID stands for, and with how many graph nodes, is the caller's rule. */
typedef enum fake_call (*fake_rule)(uint32_t correlation);

/* One API call; returns its correlation ID. */
uint32_t fake_call(fake_rule rule, uint32_t graph_nodes);

/* Records that were handed over to buffers, and records that found none. */
void fake_counts(uint64_t *recorded, uint64_t *dropped);

#endif
