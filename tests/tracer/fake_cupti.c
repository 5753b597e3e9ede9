/* A libcupti that needs no GPU, and obeys the rules of NVIDIA's (cupti_activity.h of 13.5): records tell their number.
 *
 *   - A record is put into a buffer when its kernel is launched, and is complete when the kernel has ended.
 *   - Buffers are a thread's and a context's. One is handed over when all its records are complete, and it is full or
 *     flushed.
 *   - A forced flush hands over all buffers: kernels that still run have end 0 there, and are not told again.
 *   - What was not handed over is lost, and not counted, when its context is reset. A flush synchronises nothing.
 *   - It has a lock, which it holds when it asks for a buffer, and at a fork (libcupti imports __register_atfork).
 *   - A flush is allowed from callbacks of API calls alone; whoever calls it elsewhere is told on stderr.
 *
 * Switches, in the environment:
 *   FAKE_CUPTI_VERSION       what cuptiGetVersion says
 *   FAKE_CUPTI_SUBSCRIBE     what cuptiSubscribe returns
 *   FAKE_CUPTI_ENABLE        what cuptiActivityEnable returns
 *   FAKE_CUPTI_RECORD_BYTES  what cuptiActivityGetStructSize says, from CUDA 13 on
 *   FAKE_CUPTI_DROP_EVERY    every so many records are lost, and counted as dropped
 *   FAKE_CUPTI_LOSE_EVERY    every so many records are lost, and not counted
 *   FAKE_CUPTI_UNTIMED_EVERY every so many records have no times
 *   FAKE_CUPTI_IN_STREAMS    kernels end in any order, but for those of one stream (default: in any order at all)
 *   FAKE_CUPTI_KERNEL_MS     how long a kernel runs, unless 257 later ones push it out before (default: 20)
 *   FAKE_CUPTI_ENDLESS       the kernel of this correlation ID never ends
 *   FAKE_CUPTI_ENDLESS_DEVICE  the first kernel of this device never ends
 */
#include <stdio.h>
#include <time.h>

#include "fake_records.h"

#define MOST_CALLBACKS 1024u

static CUpti_CallbackFunc callback;
static unsigned char enabled[CUPTI_CB_DOMAIN_SIZE][MOST_CALLBACKS];

void fake_call_back(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data)
{
    CUpti_CallbackFunc function = __atomic_load_n(&callback, __ATOMIC_ACQUIRE);
    if (!function || !enabled[domain][id]) return;
    fake_forbid_flush(domain == CUPTI_CB_DOMAIN_RESOURCE);
    function(NULL, domain, id, data);
    fake_forbid_flush(-(domain == CUPTI_CB_DOMAIN_RESOURCE));
}

CUptiResult CUPTIAPI cuptiGetVersion(uint32_t *answer)
{
    fake_records_begin();
    *answer = fake_version();
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult result, const char **text)
{
    *text = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
        ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
        : result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
        : result == CUPTI_ERROR_NOT_COMPATIBLE ? "CUPTI_ERROR_NOT_COMPATIBLE" : "CUPTI_ERROR_OTHER";
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetTimestamp(uint64_t *timestamp)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    *timestamp = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetDeviceId(CUcontext context, uint32_t *device)
{
    *device = ((const struct fake_context *)(const void *)context)->device;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc function, void *user)
{
    (void)user;
    CUptiResult result = (CUptiResult)fake_switch("FAKE_CUPTI_SUBSCRIBE", CUPTI_SUCCESS);
    if (result != CUPTI_SUCCESS) return result;
    if (callback) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    __atomic_store_n(&callback, function, __ATOMIC_RELEASE);
    *subscriber = (CUpti_SubscriberHandle)&callback;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiUnsubscribe(CUpti_SubscriberHandle subscriber)
{
    (void)subscriber;
    __atomic_store_n(&callback, (CUpti_CallbackFunc)NULL, __ATOMIC_RELEASE);
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                         CUpti_CallbackDomain domain, CUpti_CallbackId id)
{
    (void)subscriber;
    if (domain >= CUPTI_CB_DOMAIN_SIZE || id >= MOST_CALLBACKS) return CUPTI_ERROR_INVALID_PARAMETER;
    enabled[domain][id] = (unsigned char)enable;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind kind)
{
    CUptiResult result = (CUptiResult)fake_switch("FAKE_CUPTI_ENABLE", CUPTI_SUCCESS);
    if (result != CUPTI_SUCCESS) return result;
    if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) fake_collect(1);
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityDisable(CUpti_ActivityKind kind)
{
    if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) fake_collect(0);
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                                    CUpti_BuffersCallbackCompleteFunc completed)
{
    fake_take_buffers(requested, completed);
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetNextRecord(uint8_t *data, size_t valid_bytes, CUpti_Activity **record)
{
    uint8_t *next = *record ? (uint8_t *)*record + fake_record_bytes() : data;
    if (next + fake_record_bytes() > data + valid_bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)(void *)next;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *count)
{
    *count = context && !stream ? fake_take_dropped((struct fake_context *)(void *)context) : 0;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t flag)
{
    if (fake_flush(flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED)) return CUPTI_SUCCESS;
    fprintf(stderr, "fake CUPTI: cuptiActivityFlushAll was called where NVIDIA forbids it\n");
    return CUPTI_ERROR_INVALID_OPERATION;
}

#if CUPTI_API_VERSION >= 130000
CUptiResult CUPTIAPI cuptiActivityGetStructSize(CUpti_ActivityKind kind, uint32_t asked, size_t *bytes)
{
    (void)kind;
    (void)asked;
    *bytes = fake_switch("FAKE_CUPTI_RECORD_BYTES", (uint32_t)fake_record_bytes());
    return CUPTI_SUCCESS;
}
#endif
