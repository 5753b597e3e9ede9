/* Between the parts of the fake CUPTI: its functions (fake_cupti.c), its records, and its driver (fake_cuda.c). */
#ifndef ASSAY_TESTS_FAKE_RECORDS_H
#define ASSAY_TESTS_FAKE_RECORDS_H

#include <cupti.h>
#include <stdint.h>

#define MOST_DEVICES 4u

/* A context: a pointer to one of these is its CUcontext. */
struct fake_context {
    uint32_t device, id;
    int alive;
    uint64_t dropped;
};

/* The value of a switch in the environment. */
uint32_t fake_switch(const char *variable, uint32_t otherwise);

/* Read the switches of the records, once. */
void fake_records_begin(void);

/* A kernel of a launch call begins to run; node 0: not of a graph. */
void fake_kernel_begins(struct fake_context *context, uint32_t correlation, uint32_t node);

/* Wait until all kernels of a context have ended: for ever where one never does. */
void fake_wait_for(struct fake_context *context);

/* Kill the kernels of a context, and lose all its records that were not handed over. */
void fake_lose(struct fake_context *context);

/* Give a callback of a domain to the subscriber, where it wants it. */
void fake_call_back(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data);

uint32_t fake_version(void);
size_t fake_record_bytes(void);

/* Whether kernels that begin get records. */
void fake_collect(int whether);

/* Where buffers come from, and go to. */
void fake_take_buffers(CUpti_BuffersCallbackRequestFunc requested, CUpti_BuffersCallbackCompleteFunc completed);

/* Records of a context that found no buffer since the last call. */
uint64_t fake_take_dropped(struct fake_context *context);

/* Hand buffers over: those whose records are all complete, or all of them. 0 where it is forbidden. */
int fake_flush(int forced);

/* From now on this thread must not flush (1), or may again (-1). */
void fake_forbid_flush(int by);

#endif
