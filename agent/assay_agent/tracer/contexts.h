/* The CUDA contexts of the process, and the helper thread that waits until their kernels have ended. */
#ifndef ASSAY_TRACER_CONTEXTS_H
#define ASSAY_TRACER_CONTEXTS_H

#include <cuda.h>
#include <stdint.h>

/* Start the helper; `collect` is called by it after each wait, `final` says whether nothing more comes. 0: no thread. */
int contexts_begin(void (*collect)(int final), int64_t limit_ms);

void contexts_created(CUcontext context, uint32_t device);
void contexts_destroyed(CUcontext context);

/* Wait until all kernels of some contexts have ended and were collected. 0 if that took longer than the limit. */
int contexts_finish_one(CUcontext context);
int contexts_finish_device(uint32_t device);
int contexts_finish_all(void);

#endif
