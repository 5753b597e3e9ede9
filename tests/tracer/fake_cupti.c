/* A libcupti that needs no GPU: the symbols that the tracer uses, and records that tell their own number.
 *
 * It stands for CUPTI's behaviour as far as the tracer relies on it: callbacks around launch calls, kernel records that
 * come later and out of order, in buffers that it asks for, drops that it counts. Switches, in the environment:
 *   FAKE_CUPTI_VERSION       what cuptiGetVersion says
 *   FAKE_CUPTI_SUBSCRIBE     what cuptiSubscribe returns
 *   FAKE_CUPTI_RECORD_BYTES  what cuptiActivityGetStructSize says, from CUDA 13 on
 *   FAKE_CUPTI_FIRST         the first correlation ID
 *   FAKE_CUPTI_DROP_EVERY    every so many records are lost, and counted as dropped
 *   FAKE_CUPTI_LOSE_EVERY    every so many records are lost, and not counted
 *   FAKE_CUPTI_UNTIMED_EVERY every so many records have no times
 *   FAKE_CUPTI_IN_STREAMS    kernels end in any order, but for those of one stream (default: in any order at all)
 */
#define _GNU_SOURCE
#include "fake_cupti.h"

#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if CUPTI_API_VERSION >= 130400
typedef CUpti_ActivityKernel13 newest_record;
#else
typedef CUpti_ActivityKernel9 newest_record;
#endif

#define PENDING 257u
#define MOST_CALLBACKS 1024u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUpti_CallbackFunc callback;
static unsigned char enabled[MOST_CALLBACKS];
static int collecting;
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static uint8_t *buffer;
static size_t buffer_bytes, used_bytes;
static uint64_t recorded, dropped, undelivered_drops, offered;
static newest_record pending[PENDING];
static unsigned char occupied[PENDING];
static unsigned oldest[PENDING];
static uint64_t random_state = 88172645463325252ull;
static uint32_t next_correlation;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t version, drop_every, lose_every, untimed_every, in_streams;
static char names[7][32];

static uint32_t number(const char *variable, uint32_t otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

static void set_up(void)
{
    version = number("FAKE_CUPTI_VERSION", CUPTI_API_VERSION);
    next_correlation = number("FAKE_CUPTI_FIRST", 1);
    drop_every = number("FAKE_CUPTI_DROP_EVERY", 0);
    lose_every = number("FAKE_CUPTI_LOSE_EVERY", 0);
    untimed_every = number("FAKE_CUPTI_UNTIMED_EVERY", 0);
    in_streams = number("FAKE_CUPTI_IN_STREAMS", 0);
    for (int i = 0; i < 7; i++) snprintf(names[i], sizeof names[i], "_Z8kernel_%dPfi", i);
}

static size_t record_bytes(void)
{
#if CUPTI_API_VERSION >= 130400
    if (version >= 130400) return sizeof(CUpti_ActivityKernel13);
    if (version >= 130300) return sizeof(CUpti_ActivityKernel12);
    if (version >= 130100) return sizeof(CUpti_ActivityKernel11);
    if (version >= 130000) return sizeof(CUpti_ActivityKernel10);
#endif
    return version >= 20 ? sizeof(CUpti_ActivityKernel9) : sizeof(CUpti_ActivityKernel8);
}

static unsigned random_slot(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)(random_state % PENDING);
}

/* ---- records: with the lock held; returns a full buffer to hand over, which is done without the lock ---- */

struct full {
    uint8_t *data;
    size_t bytes, valid;
};

static struct full taken_buffer(void)
{
    struct full full = {buffer, buffer_bytes, used_bytes};
    buffer = NULL;
    used_bytes = 0;
    return full;
}

static struct full write_record(const newest_record *record)
{
    struct full full = {NULL, 0, 0};
    size_t bytes = record_bytes();
    offered++;
    if (lose_every && offered % lose_every == 0) return full;
    if (buffer && used_bytes + bytes > buffer_bytes) full = taken_buffer();
    if (!buffer && request) {
        size_t most = 0;
        request(&buffer, &buffer_bytes, &most);
        used_bytes = 0;
    }
    if (!buffer || (drop_every && offered % drop_every == 0)) {
        dropped++;
        undelivered_drops++;
        return full;
    }
    memcpy(buffer + used_bytes, record, bytes);
    used_bytes += bytes;
    recorded++;
    return full;
}

/* Each of the three streams has 64, 80 or 85 slots of its own, used in turn. */
static unsigned slot_of_stream(uint32_t stream)
{
    unsigned number = stream % 3;
    return number * 85 + oldest[number]++ % (64 + 16 * number > 85 ? 85 : 64 + 16 * number);
}

#define CONTEXT ((CUcontext)0x10)
#define STREAM 0u

static void hand_over(struct full full)
{
    if (full.data) complete(CONTEXT, STREAM, full.data, full.bytes, full.valid);
}

static void end_kernel(const newest_record *record)
{
    struct full full = {NULL, 0, 0};
    pthread_mutex_lock(&lock);
    unsigned slot = in_streams ? slot_of_stream(record->streamId) : random_slot();
    if (collecting) {
        if (occupied[slot]) full = write_record(&pending[slot]);
        pending[slot] = *record;
        occupied[slot] = 1;
    }
    pthread_mutex_unlock(&lock);
    hand_over(full);
}

static newest_record made_record(uint32_t correlation, uint32_t node)
{
    newest_record record;
    memset(&record, 0, sizeof record);
    record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    record.start = 1000000000000ull + (uint64_t)correlation * 1000 + node * 10;
    record.end = record.start + 500 + correlation % 97;
    if (untimed_every && correlation % untimed_every == 0) record.start = record.end = 0;
    record.deviceId = 0;
    record.contextId = 1;
    record.streamId = 7 + correlation % 3;
    record.gridX = 1 + (int32_t)(correlation & 0xfffff);
    record.gridY = 2;
    record.gridZ = 3;
    record.blockX = 128 + (int32_t)node;
    record.blockY = record.blockZ = 1;
    record.registersPerThread = 32;
    record.staticSharedMemory = 1024;
    record.dynamicSharedMemory = (int32_t)(correlation >> 20);
    record.correlationId = correlation;
    record.name = names[correlation % 7];
    if (node) {
        record.graphNodeId = (1ull << 32) + node;
        record.graphId = 5;
        record.streamId = 7;
    }
    return record;
}

/* ---- the workload's side ---- */

void fake_init(void)
{
    pthread_once(&once, set_up);
    const char *path = getenv("CUDA_INJECTION64_PATH");
    if (!path || !*path) return;
    void *library = dlopen(path, RTLD_NOW);
    int (*initialize)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
    if (initialize)
        initialize();
    else
        fprintf(stderr, "fake CUDA: %s\n", dlerror());
}

static void call_back(CUpti_ApiCallbackSite site, CUpti_CallbackId id, uint32_t correlation, const void *parameters,
                      CUresult *result)
{
    if (!callback || !enabled[id]) return;
    CUpti_CallbackData data;
    memset(&data, 0, sizeof data);
    data.callbackSite = site;
    data.functionParams = parameters;
    data.functionReturnValue = site == CUPTI_API_EXIT ? result : NULL;
    data.correlationId = correlation;
    callback(NULL, CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
}

#define CAPTURING_STREAM ((CUstream)0x1000)

__attribute__((visibility("default"))) CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    *status = stream == CAPTURING_STREAM ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

void fake_begin_capture(void)
{
    uint32_t correlation = __atomic_fetch_add(&next_correlation, 1, __ATOMIC_RELAXED);
    CUresult result = CUDA_SUCCESS;
    call_back(CUPTI_API_ENTER, CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2, correlation, NULL, &result);
    call_back(CUPTI_API_EXIT, CUPTI_DRIVER_TRACE_CBID_cuStreamBeginCapture_v2, correlation, NULL, &result);
}

uint32_t fake_call(fake_rule rule, uint32_t graph_nodes)
{
    uint32_t correlation = __atomic_fetch_add(&next_correlation, 1, __ATOMIC_RELAXED);
    enum fake_call kind = rule(correlation);
    CUresult result = kind == FAKE_FAILING ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    CUstream stream = kind == FAKE_CAPTURED ? CAPTURING_STREAM : (CUstream)(uintptr_t)(0x2000 + correlation % 3);
    cuLaunchKernel_params kernel_parameters = {.hStream = stream};
    cuGraphLaunch_params graph_parameters = {.hStream = stream};
    const void *parameters = kind == FAKE_GRAPH ? (const void *)&graph_parameters : (const void *)&kernel_parameters;
    CUpti_CallbackId id
        = kind == FAKE_GRAPH ? CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch : CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel;
    call_back(CUPTI_API_ENTER, id, correlation, parameters, &result);
    newest_record record;
    if (kind == FAKE_KERNEL) {
        record = made_record(correlation, 0);
        end_kernel(&record);
    }
    for (uint32_t node = 1; kind == FAKE_GRAPH && node <= graph_nodes; node++) {
        record = made_record(correlation, node);
        end_kernel(&record);
    }
    call_back(CUPTI_API_EXIT, id, correlation, parameters, &result);
    return correlation;
}

void fake_counts(uint64_t *recorded_records, uint64_t *dropped_records)
{
    pthread_mutex_lock(&lock);
    *recorded_records = recorded;
    *dropped_records = dropped;
    pthread_mutex_unlock(&lock);
}

/* ---- CUPTI's side ---- */

CUptiResult CUPTIAPI cuptiGetVersion(uint32_t *answer)
{
    pthread_once(&once, set_up);
    *answer = version;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult result, const char **text)
{
    *text = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
        ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
        : result == CUPTI_ERROR_INSUFFICIENT_PRIVILEGES ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES" : "CUPTI_ERROR_OTHER";
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetTimestamp(uint64_t *timestamp)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    *timestamp = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc function, void *user)
{
    (void)user;
    CUptiResult result = (CUptiResult)number("FAKE_CUPTI_SUBSCRIBE", CUPTI_SUCCESS);
    if (result != CUPTI_SUCCESS) return result;
    if (callback) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    callback = function;
    *subscriber = (CUpti_SubscriberHandle)&callback;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiUnsubscribe(CUpti_SubscriberHandle subscriber)
{
    (void)subscriber;
    callback = NULL;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                         CUpti_CallbackDomain domain, CUpti_CallbackId id)
{
    (void)subscriber;
    if (domain != CUPTI_CB_DOMAIN_DRIVER_API || id >= MOST_CALLBACKS) return CUPTI_ERROR_INVALID_PARAMETER;
    enabled[id] = (unsigned char)enable;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind kind)
{
    collecting |= kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityDisable(CUpti_ActivityKind kind)
{
    pthread_mutex_lock(&lock);
    if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) collecting = 0;
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                                    CUpti_BuffersCallbackCompleteFunc completed)
{
    request = requested;
    complete = completed;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetNextRecord(uint8_t *data, size_t valid_bytes, CUpti_Activity **record)
{
    uint8_t *next = *record ? (uint8_t *)*record + record_bytes() : data;
    if (next + record_bytes() > data + valid_bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)(void *)next;
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *count)
{
    pthread_mutex_lock(&lock);
    int asked = context == CONTEXT && stream == STREAM;
    *count = asked ? undelivered_drops : 0;
    undelivered_drops = asked ? 0 : undelivered_drops;
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

/* A flush gives the buffer as it is; a forced one also ends all kernels. */
CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t flag)
{
    for (unsigned slot = 0; slot < PENDING && (flag & CUPTI_ACTIVITY_FLAG_FLUSH_FORCED); slot++) {
        struct full full = {NULL, 0, 0};
        pthread_mutex_lock(&lock);
        if (occupied[slot]) full = write_record(&pending[slot]);
        occupied[slot] = 0;
        pthread_mutex_unlock(&lock);
        hand_over(full);
    }
    pthread_mutex_lock(&lock);
    struct full full = used_bytes ? taken_buffer() : (struct full){NULL, 0, 0};
    pthread_mutex_unlock(&lock);
    hand_over(full);
    return CUPTI_SUCCESS;
}

#if CUPTI_API_VERSION >= 130000
CUptiResult CUPTIAPI cuptiActivityGetStructSize(CUpti_ActivityKind kind, uint32_t asked, size_t *bytes)
{
    (void)kind;
    (void)asked;
    *bytes = number("FAKE_CUPTI_RECORD_BYTES", (uint32_t)record_bytes());
    return CUPTI_SUCCESS;
}
#endif
