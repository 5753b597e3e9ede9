/* The records of the fake CUPTI: kernels that run, and the buffers that their records are in; rules in fake_cupti.c. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fake_cupti.h"
#include "fake_records.h"

#if CUPTI_API_VERSION >= 130400
typedef CUpti_ActivityKernel13 newest_record;
#else
typedef CUpti_ActivityKernel9 newest_record;
#endif

#ifndef DEFAULT_VERSION
#define DEFAULT_VERSION CUPTI_API_VERSION
#endif
#define RUNNING 257u
#define MOST_NAMES 256u

struct buffer {
    struct buffer *next; /* of all that CUPTI holds, or of those to hand over */
    const void *thread;
    struct fake_context *context;
    uint8_t *data;
    size_t bytes, used;
    unsigned running; /* records that are not complete */
    int full;
};

struct kernel {
    struct buffer *buffer; /* NULL: handed over, or lost */
    size_t offset;
    uint64_t ends_ns; /* of the monotonic clock; UINT64_MAX: never */
    struct fake_context *context;
    newest_record record;
    int occupied;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int collecting;
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static struct buffer *buffers;
static struct kernel running[RUNNING + 1]; /* the last: a kernel that never ends */
static unsigned oldest[3];
static uint64_t recorded, dropped, offered;
static uint64_t random_state = 88172645463325252ull;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static uint32_t version, drop_every, lose_every, untimed_every, in_streams, kernel_ms, endless, endless_device;
static char names[7][32];
static char *described_names[MOST_NAMES];
static __thread const struct fake_kernel *described; /* of the next launch call */
static __thread char this_thread;
static __thread int forbidden; /* within a callback from which NVIDIA forbids to flush */

void fake_forbid_flush(int by)
{
    forbidden += by;
}

uint32_t fake_version(void)
{
    return version;
}

uint32_t fake_switch(const char *variable, uint32_t otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

static void lock_all(void)
{
    pthread_mutex_lock(&lock);
}

static void unlock_all(void)
{
    pthread_mutex_unlock(&lock);
}

void fake_within(void (*during)(void))
{
    lock_all();
    during();
    unlock_all();
}

static void set_up(void)
{
    version = fake_switch("FAKE_CUPTI_VERSION", DEFAULT_VERSION);
    drop_every = fake_switch("FAKE_CUPTI_DROP_EVERY", 0);
    lose_every = fake_switch("FAKE_CUPTI_LOSE_EVERY", 0);
    untimed_every = fake_switch("FAKE_CUPTI_UNTIMED_EVERY", 0);
    in_streams = fake_switch("FAKE_CUPTI_IN_STREAMS", 0);
    kernel_ms = fake_switch("FAKE_CUPTI_KERNEL_MS", 20);
    endless = fake_switch("FAKE_CUPTI_ENDLESS", 0);
    endless_device = fake_switch("FAKE_CUPTI_ENDLESS_DEVICE", MOST_DEVICES);
    pthread_atfork(lock_all, unlock_all, unlock_all);
    for (int i = 0; i < 7; i++) snprintf(names[i], sizeof names[i], "_Z8kernel_%dPfi", i);
}

void fake_records_begin(void)
{
    pthread_once(&once, set_up);
}

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

size_t fake_record_bytes(void)
{
#if CUPTI_API_VERSION >= 130400
    if (version >= 130400) return sizeof(CUpti_ActivityKernel13);
    if (version >= 130300) return sizeof(CUpti_ActivityKernel12);
    if (version >= 130100) return sizeof(CUpti_ActivityKernel11);
    if (version >= 130000) return sizeof(CUpti_ActivityKernel10);
#endif
    return version >= 20 ? sizeof(CUpti_ActivityKernel9) : sizeof(CUpti_ActivityKernel8);
}

/* ---- buffers: with the lock held; what is to be handed over is collected, and handed over without it ---- */

static void take_out(struct buffer *buffer, struct buffer **taken)
{
    struct buffer **at = &buffers;
    while (*at != buffer) at = &(*at)->next;
    *at = buffer->next;
    buffer->next = *taken;
    *taken = buffer;
}

static void hand_over(struct buffer *taken)
{
    while (taken) {
        struct buffer *next = taken->next;
        forbidden++;
        complete((CUcontext)taken->context, 0, taken->data, taken->bytes, taken->used);
        forbidden--;
        free(taken);
        taken = next;
    }
}

static void end(struct kernel *kernel, struct buffer **taken)
{
    struct buffer *buffer = kernel->buffer;
    kernel->occupied = 0;
    if (!buffer) return;
    memcpy(buffer->data + kernel->offset, &kernel->record, fake_record_bytes());
    if (--buffer->running == 0 && buffer->full) take_out(buffer, taken);
}

/* The buffer of this thread and context that has room for another record; NULL where CUPTI is given none. */
static struct buffer *open_buffer(struct fake_context *context, struct buffer **taken)
{
    struct buffer *buffer = buffers;
    while (buffer && (buffer->full || buffer->thread != &this_thread || buffer->context != context))
        buffer = buffer->next;
    if (buffer && buffer->used + fake_record_bytes() > buffer->bytes) {
        buffer->full = 1;
        if (!buffer->running) take_out(buffer, taken);
        buffer = NULL;
    }
    if (buffer || !request) return buffer;
    struct buffer made = {.thread = &this_thread, .context = context};
    size_t most = 0;
    forbidden++;
    request(&made.data, &made.bytes, &most);
    forbidden--;
    if (!made.data) return NULL;
    buffer = malloc(sizeof *buffer);
    if (!buffer) abort();
    *buffer = made;
    buffer->next = buffers;
    buffers = buffer;
    return buffer;
}

static unsigned slot_of(const newest_record *record)
{
    int first_of_device = record->deviceId == endless_device && !running[RUNNING].occupied;
    if ((endless && record->correlationId == endless) || first_of_device) return RUNNING;
    if (in_streams) { /* each of the three streams has 85 slots of its own, used in turn */
        unsigned stream = record->streamId % 3;
        return stream * 85 + oldest[stream]++ % 85;
    }
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)(random_state % RUNNING);
}

static void begin(struct fake_context *context, const newest_record *record, struct buffer **taken)
{
    struct kernel *kernel = &running[slot_of(record)];
    if (kernel->occupied) end(kernel, taken);
    *kernel = (struct kernel){.context = context, .record = *record, .occupied = 1};
    kernel->ends_ns = kernel == &running[RUNNING] ? UINT64_MAX : now_ns() + (uint64_t)kernel_ms * 1000000u;
    offered++;
    if (!collecting || (lose_every && offered % lose_every == 0)) return;
    struct buffer *buffer = drop_every && offered % drop_every == 0 ? NULL : open_buffer(context, taken);
    if (!buffer) {
        dropped++;
        context->dropped++;
        return;
    }
    newest_record unfinished = *record;
    unfinished.end = 0;
    kernel->buffer = buffer;
    kernel->offset = buffer->used;
    memcpy(buffer->data + buffer->used, &unfinished, fake_record_bytes());
    buffer->used += fake_record_bytes();
    buffer->running++;
    recorded++;
}

static newest_record made_record(const struct fake_context *context, uint32_t correlation, uint32_t node)
{
    newest_record record;
    memset(&record, 0, sizeof record);
    record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    record.start = 1000000000000ull + (uint64_t)correlation * 1000 + node * 10;
    record.end = record.start + 500 + correlation % 97;
    if (untimed_every && correlation % untimed_every == 0) record.start = record.end = 0;
    record.deviceId = context->device;
    record.contextId = context->id;
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

void fake_describe(const struct fake_kernel *kernels)
{
    described = kernels;
}

/* Names outlive the program's own, as CUPTI's do. */
static const char *kept_name(const char *name)
{
    unsigned i = 0;
    pthread_mutex_lock(&lock);
    while (i < MOST_NAMES && described_names[i] && strcmp(described_names[i], name) != 0) i++;
    if (i == MOST_NAMES) abort();
    if (!described_names[i]) described_names[i] = strdup(name);
    pthread_mutex_unlock(&lock);
    return described_names[i];
}

static void take_description(newest_record *record, const struct fake_kernel *kernel)
{
    record->name = kept_name(kernel->name);
    record->start = kernel->start_ns;
    record->end = kernel->end_ns;
    record->gridX = kernel->grid[0];
    record->gridY = kernel->grid[1];
    record->gridZ = kernel->grid[2];
    record->blockX = kernel->block[0];
    record->blockY = kernel->block[1];
    record->blockZ = kernel->block[2];
    record->registersPerThread = (uint16_t)kernel->registers;
    record->staticSharedMemory = kernel->static_bytes;
    record->dynamicSharedMemory = kernel->dynamic_bytes;
    record->streamId = kernel->stream;
}

void fake_kernel_begins(struct fake_context *context, uint32_t correlation, uint32_t node)
{
    struct buffer *taken = NULL;
    newest_record record = made_record(context, correlation, node);
    if (described) take_description(&record, &described[node ? node - 1 : 0]);
    pthread_mutex_lock(&lock);
    begin(context, &record, &taken);
    pthread_mutex_unlock(&lock);
    hand_over(taken);
}

/* End what has run long enough; whether a kernel of the context (NULL: of any) still runs. */
static int end_due(struct fake_context *context, struct buffer **taken)
{
    uint64_t now = now_ns();
    int left = 0;
    for (struct kernel *kernel = running; kernel <= &running[RUNNING]; kernel++) {
        if (!kernel->occupied) continue;
        if (kernel->ends_ns <= now)
            end(kernel, taken);
        else
            left |= !context || kernel->context == context;
    }
    return left;
}

void fake_wait_for(struct fake_context *context)
{
    int left;
    do {
        struct buffer *taken = NULL;
        pthread_mutex_lock(&lock);
        left = end_due(context, &taken);
        pthread_mutex_unlock(&lock);
        hand_over(taken);
        if (left) usleep(1000);
    } while (left);
}

void fake_lose(struct fake_context *context)
{
    pthread_mutex_lock(&lock);
    for (struct kernel *kernel = running; kernel <= &running[RUNNING]; kernel++)
        if (kernel->context == context) kernel->occupied = 0;
    for (struct buffer **at = &buffers; *at;) {
        struct buffer *buffer = *at;
        if (buffer->context == context) {
            *at = buffer->next; /* the tracer's memory stays with it, unused: CUPTI never gives it back */
            free(buffer);
        } else {
            at = &buffer->next;
        }
    }
    pthread_mutex_unlock(&lock);
}

void fake_counts(uint64_t *recorded_records, uint64_t *dropped_records)
{
    pthread_mutex_lock(&lock);
    *recorded_records = recorded;
    *dropped_records = dropped;
    pthread_mutex_unlock(&lock);
}

void fake_collect(int whether)
{
    pthread_mutex_lock(&lock);
    collecting = whether;
    pthread_mutex_unlock(&lock);
}

void fake_take_buffers(CUpti_BuffersCallbackRequestFunc requested, CUpti_BuffersCallbackCompleteFunc completed)
{
    request = requested;
    complete = completed;
}

uint64_t fake_take_dropped(struct fake_context *context)
{
    pthread_mutex_lock(&lock);
    uint64_t taken = context->dropped;
    context->dropped = 0;
    pthread_mutex_unlock(&lock);
    return taken;
}

int fake_flush(int forced)
{
    struct buffer *taken = NULL;
    if (forbidden) return 0;
    pthread_mutex_lock(&lock);
    end_due(NULL, &taken);
    for (struct buffer *buffer = buffers, *next; buffer; buffer = next) {
        next = buffer->next;
        if (!buffer->used || (buffer->running && !forced)) continue;
        for (struct kernel *kernel = running; buffer->running && kernel <= &running[RUNNING]; kernel++)
            if (kernel->occupied && kernel->buffer == buffer) kernel->buffer = NULL;
        take_out(buffer, &taken);
    }
    pthread_mutex_unlock(&lock);
    hand_over(taken);
    return 1;
}
