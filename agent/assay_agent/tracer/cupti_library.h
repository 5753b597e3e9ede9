/* The libcupti of the process: found at run time, its functions, and the kernel record it writes. */
#ifndef ASSAY_TRACER_CUPTI_LIBRARY_H
#define ASSAY_TRACER_CUPTI_LIBRARY_H

#include <cupti.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol.h"

struct cupti_library {
    uint32_t version;
    uint32_t layout; /* n of CUpti_ActivityKernel<n>, 0: none fits */
    CUptiResult (*get_version)(uint32_t *);
    CUptiResult (*result_string)(CUptiResult, const char **);
    CUptiResult (*timestamp)(uint64_t *);
    CUptiResult (*subscribe)(CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *);
    CUptiResult (*unsubscribe)(CUpti_SubscriberHandle);
    CUptiResult (*enable_callback)(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain, CUpti_CallbackId);
    CUptiResult (*enable)(CUpti_ActivityKind);
    CUptiResult (*disable)(CUpti_ActivityKind);
    CUptiResult (*register_callbacks)(CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc);
    CUptiResult (*next_record)(uint8_t *, size_t, CUpti_Activity **);
    CUptiResult (*dropped)(CUcontext, uint32_t, size_t *);
    CUptiResult (*flush)(uint32_t);
    CUptiResult (*device_of)(CUcontext, uint32_t *);                      /* may be NULL */
    CUptiResult (*struct_size)(CUpti_ActivityKind, uint32_t, size_t *); /* NULL before CUDA 13 */
};

/* The newest version of CUPTI that this build reads. */
uint32_t cupti_library_newest(void);

/* Load it and choose the layout. Returns 0, or a code of enum assay_problem_code with its text. */
int cupti_library_open(struct cupti_library *library, char *problem, size_t problem_bytes);

/* A function of the CUDA driver of this process; NULL if it does not have the function. */
void *cuda_driver_function(const char *name);

/* Read one kernel record of that layout; everything but the order and the name is set. */
void cupti_library_read(const struct cupti_library *library, const CUpti_Activity *record,
                        struct assay_kernel *kernel, const char **name, uint32_t *correlation);

#endif
