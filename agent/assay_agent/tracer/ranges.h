/* The NVTX ranges that are open on each thread. The library is NVTX's own tool: see ranges.c. */
#ifndef ASSAY_TRACER_RANGES_H
#define ASSAY_TRACER_RANGES_H

#include <stdint.h>

/* The id of the innermost push/pop range that is open on this thread, 0: none. */
uint32_t range_innermost(void);

/* How many pushes got no name because too many were different. */
uint64_t ranges_unnamed(void);

#endif
