/* The socket to the agent: every send ends within a bounded time, and nothing is sent after a failure. */
#ifndef ASSAY_TRACER_OUTPUT_H
#define ASSAY_TRACER_OUTPUT_H

#include <stddef.h>
#include <stdint.h>

/* Connect to the agent at a path; 0 if nobody listens there. */
int output_open(const char *path, int64_t stall_ms);

/* Whether the agent is still there as far as is known. */
int output_alive(void);

/* Send a frame: a header, a fixed part and a text or an array (each may be empty). 0 if it was not completely sent. */
int output_frame(uint32_t type, uint32_t count, const void *fixed, size_t fixed_bytes, const void *rest,
                 size_t rest_bytes);

void output_close(void);

#endif
