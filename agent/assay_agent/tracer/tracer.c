/* The tracer: injected into a CUDA process, it hands every kernel to the agent while the process runs.
 *
 * CUDA calls InitializeInjection of the library named by CUDA_INJECTION64_PATH in the first cuInit. From then on
 *   - launch calls (driver callbacks) are counted, and noted in a ring with their order and NVTX range;
 *   - CUPTI fills activity buffers of a pool with kernel records and hands them back when they are full or flushed;
 *   - one thread of ours turns both into frames and sends them.
 * Memory is bounded: 128 buffers of 256 KiB, 65,536 launches, 65,536 names. Where the agent is slow, launch calls
 * wait, all together at most ASSAY_TRACER_WAIT_MS; after that CUPTI finds no buffer, drops records and counts them.
 * Where the agent is gone, or takes nothing for ASSAY_TRACER_STALL_MS, tracing ends and the process runs on.
 * A flush waits for no kernel: one that still runs at a forced flush has lost its end, and a reset of its device loses
 * its record. Before both a helper thread waits for the contexts, at most ASSAY_TRACER_SYNC_MS.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"
#include "contexts.h"
#include "cupti_library.h"
#include "exits.h"
#include "forks.h"
#include "graphs.h"
#include "names.h"
#include "output.h"
#include "protocol.h"
#include "ranges.h"

/* CUPTI fills one for each thread that launches, so there are many small ones. */
#define BUFFER_BYTES (256u << 10)
#define BUFFER_HEADER_BYTES 64u
#define MOST_BUFFERS 128u
#define MANY_QUEUED 64u
#define RING_LAUNCHES 65536u
#define FRAME_KERNELS 2048u
#define POINTERS 8192u
#define DEFAULT_WAIT_MS 30000
#define DEFAULT_STALL_MS 10000
#define DEFAULT_FLUSH_MS 200
#define DEFAULT_SYNC_MS 30000

struct buffer {
    struct buffer *next;
    size_t valid_bytes;
};

static struct cupti_library library;
static CUpti_SubscriberHandle subscriber;
static pid_t owner;
static int tracing; /* cleared in a forked child, which does not have our thread */
static pthread_t sender;
static int64_t wait_limit_ns, flush_ms;
static struct assay_totals totals; /* updated with atomics */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work, room;
static struct buffer *free_buffers, *queue_head, **queue_tail = &queue_head;
static unsigned allocated, queued;
static struct assay_launch ring[RING_LAUNCHES];
static uint32_t ring_head, ring_count;
static int look_for_exits, stopping, kernels_run; /* at the end: whether some had not ended in time */
static __thread volatile sig_atomic_t within_callback;

static uint64_t newest_order = 1ull << 32; /* not 0, so that no order is negative */
static int captures_seen;
static CUresult (*is_capturing)(CUstream, CUstreamCaptureStatus *);
/* The launch call that this thread is in; a captured one runs nothing. */
static __thread struct {
    int within, captured;
    uint32_t kernels;
} current;

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void add(uint64_t *counter, uint64_t amount)
{
    if (amount) __atomic_add_fetch(counter, amount, __ATOMIC_RELAXED);
}

/* Correlation IDs have 32 bits and wrap; those near each other in time are near each other in number. */
static uint64_t widened(uint32_t correlation)
{
    uint64_t newest = __atomic_load_n(&newest_order, __ATOMIC_RELAXED);
    uint64_t order = newest + (uint64_t)(int64_t)(int32_t)(correlation - (uint32_t)newest);
    while (order > newest
           && !__atomic_compare_exchange_n(&newest_order, &newest, order, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return order;
}

/* ---- buffers: CUPTI's side ---- */

static void CUPTIAPI buffer_requested(uint8_t **data, size_t *bytes, size_t *most_records)
{
    struct buffer *buffer = NULL;
    *data = NULL;
    *bytes = *most_records = 0;
    if (!__atomic_load_n(&tracing, __ATOMIC_RELAXED)) return;
    pthread_mutex_lock(&lock);
    if (free_buffers) {
        buffer = free_buffers;
        free_buffers = buffer->next;
    } else if (allocated < MOST_BUFFERS) {
        buffer = aligned_alloc(BUFFER_HEADER_BYTES, BUFFER_HEADER_BYTES + BUFFER_BYTES);
        allocated += buffer != NULL;
    }
    pthread_mutex_unlock(&lock);
    if (!buffer) return; /* CUPTI drops records and counts them */
    *data = (uint8_t *)buffer + BUFFER_HEADER_BYTES;
    *bytes = BUFFER_BYTES;
}

/* CUPTI counts drops for each context and stream whose buffers it hands back. */
static CUcontext last_context;
static uint32_t last_stream;

static void note_dropped(CUcontext context, uint32_t stream)
{
    size_t dropped = 0;
    if (library.dropped(context, stream, &dropped) == CUPTI_SUCCESS) add(&totals.dropped_cupti, dropped);
}

static void CUPTIAPI buffer_completed(CUcontext context, uint32_t stream, uint8_t *data, size_t bytes,
                                      size_t valid_bytes)
{
    (void)bytes;
    if (!data || !__atomic_load_n(&tracing, __ATOMIC_RELAXED)) return;
    struct buffer *buffer = (struct buffer *)(data - BUFFER_HEADER_BYTES);
    note_dropped(context, stream);
    pthread_mutex_lock(&lock);
    last_context = context;
    last_stream = stream;
    buffer->next = NULL;
    buffer->valid_bytes = valid_bytes;
    *queue_tail = buffer;
    queue_tail = &buffer->next;
    queued++;
    pthread_cond_signal(&work);
    pthread_mutex_unlock(&lock);
}

/* ---- launches: the workload's side ---- */

/* With the lock held: whether there is room, after waiting for the rest of the limit. */
static int has_room(void)
{
    while (queued >= MANY_QUEUED || ring_count >= RING_LAUNCHES) {
        uint64_t waited = __atomic_load_n(&totals.waited_ns, __ATOMIC_RELAXED);
        if (stopping || !output_alive() || waited >= (uint64_t)wait_limit_ns) break;
        uint64_t began = clock_ns(CLOCK_MONOTONIC);
        uint64_t until = began + 50000000u;
        struct timespec limit = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
        pthread_cond_signal(&work);
        pthread_cond_timedwait(&room, &lock, &limit);
        add(&totals.waited_ns, clock_ns(CLOCK_MONOTONIC) - began);
    }
    return ring_count < RING_LAUNCHES;
}

static void note_launch(uint32_t correlation, uint32_t range, uint32_t kernels)
{
    struct assay_launch launch = {widened(correlation), range, kernels};
    pthread_mutex_lock(&lock);
    if (output_alive() && has_room()) {
        ring[(ring_head + ring_count++) % RING_LAUNCHES] = launch;
        if (ring_count == RING_LAUNCHES / 4) pthread_cond_signal(&work);
    } else {
        add(&totals.launches_unsent, 1);
    }
    pthread_mutex_unlock(&lock);
}

/* A launch into a stream that is being captured becomes a node of a graph, and no kernel runs. */
static int into_capture(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!__atomic_load_n(&captures_seen, __ATOMIC_RELAXED) || !stream || stream == CU_STREAM_LEGACY) return 0;
    return is_capturing && is_capturing(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static void launch_begins(const struct call *call, uint32_t correlation)
{
    current.within = 1;
    current.captured = into_capture(call->stream);
    current.kernels = call->kind == CALL_GRAPH ? graphs_kernels(call->executable) : call->kernels;
    if (current.captured || current.kernels == 0) return;
    uint32_t kernels = current.kernels == GRAPHS_UNCOUNTED ? ASSAY_KERNELS_UNKNOWN : current.kernels;
    note_launch(correlation, range_innermost(), kernels);
}

static void launch_ends(const struct call *call, uint32_t correlation, int failed)
{
    current.within = 0;
    if (current.captured) return;
    if (failed) {
        note_launch(correlation, 0, ASSAY_KERNELS_NONE);
    } else if (call->kind == CALL_LAUNCH) {
        add(&totals.launches, current.kernels);
    } else {
        add(&totals.graph_launches, 1);
        if (current.kernels == GRAPHS_UNCOUNTED)
            add(&totals.graph_launches_uncounted, 1);
        else
            add(&totals.graph_kernels_expected, current.kernels);
    }
}

static void call_begins(const struct call *call, uint32_t correlation)
{
    switch (call->kind) {
    case CALL_LAUNCH:
    case CALL_GRAPH: launch_begins(call, correlation); break;
    case CALL_CAPTURE: __atomic_store_n(&captures_seen, 1, __ATOMIC_RELAXED); break;
    case CALL_DESTROY: add(&totals.unsynchronised, !contexts_finish_one(call->context)); break;
    case CALL_RESET: add(&totals.unsynchronised, !contexts_finish_device(call->device)); break;
    default: break;
    }
}

static void call_ends(const struct call *call, uint32_t correlation, int failed)
{
    if (call->kind == CALL_LAUNCH || call->kind == CALL_GRAPH)
        launch_ends(call, correlation, failed);
    else if (call->kind == CALL_CHILD && !failed && call->node)
        graphs_child(*call->node, call->child);
    else if (call->kind == CALL_SWITCH && !failed)
        graphs_switched(call->executable);
}

/* A new context: our thread must look for libraries that were loaded since. */
static void exits_due(void)
{
    pthread_mutex_lock(&lock);
    look_for_exits = 1;
    pthread_cond_signal(&work);
    pthread_mutex_unlock(&lock);
}

static void resource(CUpti_CallbackId id, const CUpti_ResourceData *data)
{
    uint32_t device = 0;
    if (id == CUPTI_CBID_RESOURCE_CONTEXT_CREATED) {
        exits_due();
        if (library.device_of) library.device_of(data->context, &device);
        contexts_created(data->context, device);
    } else if (id == CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING) {
        contexts_destroyed(data->context);
    } else {
        graphs_take(id, data->resourceDescriptor);
    }
}

static void driver_call(CUpti_CallbackId id, const CUpti_CallbackData *information)
{
    struct call call = call_of(id, information->functionParams);
    const CUresult *result = information->functionReturnValue;
    if (information->callbackSite == CUPTI_API_ENTER)
        call_begins(&call, information->correlationId);
    else
        call_ends(&call, information->correlationId, result && *result != CUDA_SUCCESS);
}

static void CUPTIAPI called(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data)
{
    (void)user;
    const CUpti_CallbackData *information = data;
    if (!__atomic_load_n(&tracing, __ATOMIC_RELAXED)) return;
    within_callback++;
    if (domain == CUPTI_CB_DOMAIN_RESOURCE)
        resource(id, data);
    else if (domain == CUPTI_CB_DOMAIN_DRIVER_API)
        driver_call(id, information);
    within_callback--;
}

/* ---- sending: our thread's side ---- */

static uint32_t names_sent;
static struct {
    const char *pointer;
    uint32_t id;
} known_pointers[POINTERS];

static void send_names(void)
{
    uint32_t count = name_count();
    for (; names_sent < count && output_alive(); names_sent++) {
        const struct name *name = name_of(names_sent + 1);
        struct assay_name fixed = {names_sent + 1, name->parent, name->kind, name->bytes};
        output_frame(ASSAY_FRAME_NAME, 1, &fixed, sizeof fixed, name->text, name->bytes);
    }
}

/* Kernels of one name share the pointer, but a pointer may come to mean another name: the text is compared. */
static uint32_t kernel_name(const char *text)
{
    if (!text) text = "";
    unsigned slot = (unsigned)(((uintptr_t)text >> 4) % POINTERS);
    uint32_t id = known_pointers[slot].id;
    if (known_pointers[slot].pointer == text && id && strncmp(name_of(id)->text, text, NAME_LONGEST_BYTES) == 0)
        return id;
    id = name_intern(NAME_KERNEL, 0, text);
    known_pointers[slot].pointer = text;
    known_pointers[slot].id = id;
    return id;
}

static void send_launches(void)
{
    static struct assay_launch taken[RING_LAUNCHES];
    pthread_mutex_lock(&lock);
    uint32_t count = ring_count;
    uint32_t first = RING_LAUNCHES - ring_head < count ? RING_LAUNCHES - ring_head : count;
    memcpy(taken, ring + ring_head, first * sizeof *taken);
    memcpy(taken + first, ring, (count - first) * sizeof *taken);
    ring_head = (ring_head + count) % RING_LAUNCHES;
    ring_count = 0;
    if (count) pthread_cond_broadcast(&room);
    pthread_mutex_unlock(&lock);
    if (!count) return;
    send_names();
    if (!output_frame(ASSAY_FRAME_LAUNCHES, count, NULL, 0, taken, count * sizeof *taken))
        add(&totals.launches_unsent, count);
}

struct counts {
    uint64_t kernels, graph, device;
};

static void send_kernels(const struct assay_kernel *kernels, uint32_t count, struct counts *counts)
{
    if (!count) return;
    send_names();
    if (output_frame(ASSAY_FRAME_KERNELS, count, NULL, 0, kernels, count * sizeof *kernels)) {
        add(&totals.kernels, counts->kernels);
        add(&totals.graph_kernels, counts->graph);
        add(&totals.device_launched, counts->device);
    } else {
        add(&totals.dropped_tracer, count);
    }
    *counts = (struct counts){0, 0, 0};
}

static void send_records(const struct buffer *buffer)
{
    static struct assay_kernel kernels[FRAME_KERNELS];
    struct counts counts = {0, 0, 0};
    uint32_t count = 0;
    CUpti_Activity *record = NULL;
    uint8_t *data = (uint8_t *)(uintptr_t)buffer + BUFFER_HEADER_BYTES;
    while (library.next_record(data, buffer->valid_bytes, &record) == CUPTI_SUCCESS) {
        const char *name;
        uint32_t correlation;
        if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && record->kind != CUPTI_ACTIVITY_KIND_KERNEL)
            continue;
        struct assay_kernel *kernel = &kernels[count++];
        cupti_library_read(&library, record, kernel, &name, &correlation);
        kernel->order = widened(correlation);
        kernel->name = kernel_name(name);
        if (kernel->flags & ASSAY_KERNEL_DEVICE_LAUNCHED)
            counts.device++;
        else if (kernel->graph_node)
            counts.graph++;
        else
            counts.kernels++;
        if (count == FRAME_KERNELS) {
            send_kernels(kernels, count, &counts);
            count = 0;
        }
    }
    send_kernels(kernels, count, &counts);
}

static void send_totals(uint32_t type)
{
    struct assay_totals sent;
    for (size_t i = 0; i < sizeof totals / sizeof(uint64_t); i++)
        ((uint64_t *)&sent)[i] = __atomic_load_n((uint64_t *)&totals + i, __ATOMIC_RELAXED);
    sent.names_unsent = ranges_unnamed();
    output_frame(type, 1, &sent, sizeof sent, NULL, 0);
}

static struct buffer *next_queued(void)
{
    struct buffer *buffer = queue_head;
    if (buffer) {
        queue_head = buffer->next;
        if (!queue_head) queue_tail = &queue_head;
        queued--;
    }
    return buffer;
}

/* Send everything: launches first, so that a kernel never comes long before its launch. */
static void send_all(void)
{
    for (;;) {
        send_launches();
        pthread_mutex_lock(&lock);
        struct buffer *buffer = next_queued();
        pthread_mutex_unlock(&lock);
        if (!buffer) return;
        send_records(buffer);
        pthread_mutex_lock(&lock);
        buffer->next = free_buffers;
        free_buffers = buffer;
        pthread_cond_broadcast(&room);
        pthread_mutex_unlock(&lock);
    }
}

static int wait_for_work(uint64_t until_ns)
{
    struct timespec limit = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    pthread_mutex_lock(&lock);
    while (!queue_head && ring_count < RING_LAUNCHES / 4 && !stopping && !look_for_exits)
        if (pthread_cond_timedwait(&work, &lock, &limit) == ETIMEDOUT) break;
    int stop = stopping;
    look_for_exits = 0;
    pthread_mutex_unlock(&lock);
    return stop;
}

/* The helper calls it when kernels have ended: a forced flush where nothing more comes, for contexts unknown to us. */
static void collect(int final)
{
    library.flush(0);
    if (final) library.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
}

static void finish_collecting(void)
{
    pthread_mutex_lock(&lock);
    int forced = kernels_run;
    pthread_mutex_unlock(&lock);
    if (forced) collect(1); /* of kernels that run, the times are lost */
    pthread_mutex_lock(&lock);
    CUcontext context = last_context;
    uint32_t stream = last_stream;
    pthread_mutex_unlock(&lock);
    note_dropped(NULL, 0);
    note_dropped(context, stream);
}

static void *send_until_stopped(void *unused)
{
    (void)unused;
    int collecting = 1, stop = 0;
    uint64_t flush_at = clock_ns(CLOCK_MONOTONIC) + (uint64_t)flush_ms * 1000000u;
    while (!stop) {
        stop = wait_for_work(flush_at);
        if (!stop) exits_watch();
        if (!output_alive() && collecting) {
            library.disable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
            collecting = 0;
        }
        int due = clock_ns(CLOCK_MONOTONIC) >= flush_at && !stop;
        if (due && collecting) library.flush(0);
        send_all();
        if (due) {
            add(&totals.flushes, 1);
            send_totals(ASSAY_FRAME_TOTALS);
            flush_at = clock_ns(CLOCK_MONOTONIC) + (uint64_t)flush_ms * 1000000u;
        }
    }
    finish_collecting();
    send_all();
    send_totals(ASSAY_FRAME_END);
    output_close();
    return NULL;
}

/* ---- beginning and end ---- */

/* The thread that ends the process calls no function of CUDA or CUPTI: a signal handler may end it while that thread
 * has their locks. Our threads call them, and it waits for those no longer than the limits. */
static void finish_once(void)
{
    int late = !contexts_finish_all();
    add(&totals.unsynchronised, (uint64_t)late);
    pthread_mutex_lock(&lock);
    kernels_run = late;
    stopping = 1;
    pthread_cond_broadcast(&work);
    pthread_cond_broadcast(&room);
    pthread_mutex_unlock(&lock);
    /* What is left takes at most 32 MiB of sending, each send bounded; a process never hangs for it. */
    uint64_t until = clock_ns(CLOCK_REALTIME) + (uint64_t)wait_limit_ns + 1000000000u;
    struct timespec limit = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    /* Not pthread_clockjoin_np: gcc's thread sanitizer does not know it, and reports a leaked thread. */
    if (pthread_timedjoin_np(sender, NULL, &limit) == 0) __atomic_store_n(&tracing, 0, __ATOMIC_RELAXED);
}

/* Send everything that is left, once, before the process ends; does nothing if it is not traced. */
static void finish(void)
{
    static pthread_mutex_t ending = PTHREAD_MUTEX_INITIALIZER;
    static __thread int within;
    if (!__atomic_load_n(&tracing, __ATOMIC_RELAXED) || getpid() != owner) return;
    /* A signal handler that ends the process in the middle of a launch call or a wait would wait for itself. */
    if (within || current.within || within_callback) return;
    within = 1;
    pthread_mutex_lock(&ending); /* a second thread that ends the process waits for the first */
    if (__atomic_load_n(&tracing, __ATOMIC_RELAXED) && !stopping) finish_once();
    pthread_mutex_unlock(&ending);
    within = 0;
}

static void end_in_child(void)
{
    __atomic_store_n(&tracing, 0, __ATOMIC_RELAXED);
    output_close(); /* the parent keeps its own descriptor of the socket */
}

static int64_t milliseconds(const char *variable, int64_t otherwise)
{
    const char *text = getenv(variable);
    char *end = NULL;
    long long given = text ? strtoll(text, &end, 10) : 0;
    return text && *text && !*end && given >= 0 && given <= 3600000 ? given : otherwise;
}

static void send_hello(void)
{
    struct assay_hello hello = {
        .protocol_version = ASSAY_PROTOCOL_VERSION,
        .process = (uint32_t)getpid(),
        .parent_process = (uint32_t)getppid(),
        .cupti_version = library.version,
        .known_version = cupti_library_newest(),
        .layout = library.layout,
    };
    int (*version)(int *) = (int (*)(int *))cuda_driver_function("cuDriverGetVersion");
    int number = 0;
    if (version && version(&number) == 0) hello.driver_version = (uint32_t)number;
    is_capturing = (CUresult(*)(CUstream, CUstreamCaptureStatus *))cuda_driver_function("cuStreamIsCapturing");
    if (library.layout) library.timestamp(&hello.cupti_ns);
    hello.realtime_ns = clock_ns(CLOCK_REALTIME);
    snprintf(hello.program, sizeof hello.program, "%s", program_invocation_short_name);
    output_frame(ASSAY_FRAME_HELLO, 1, &hello, sizeof hello, NULL, 0);
}

static void give_up(uint32_t code, CUptiResult result, const char *text)
{
    struct assay_problem problem = {code, (uint32_t)result};
    output_frame(ASSAY_FRAME_PROBLEM, 1, &problem, sizeof problem, text, strlen(text));
    output_close();
}

static uint32_t problem_code(CUptiResult result)
{
    switch (result) {
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED: return ASSAY_PROBLEM_SUBSCRIBED;
    /* From 13.2 on CUPTI has v2 calls, and refuses v1 calls in a process that made them. */
    case CUPTI_ERROR_NOT_COMPATIBLE: return ASSAY_PROBLEM_MIXED_CALLS;
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
    case CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED: return ASSAY_PROBLEM_PRIVILEGES;
    default: return ASSAY_PROBLEM_CUPTI_FAILED;
    }
}

static void cupti_failed(const char *function, CUptiResult result)
{
    const char *meaning = NULL;
    char text[512];
    library.result_string(result, &meaning);
    snprintf(text, sizeof text, "%s: %s (%d)%s", function, meaning ? meaning : "unknown error", (int)result,
             result == CUPTI_ERROR_NOT_COMPATIBLE
                 ? "; the process already makes calls of CUPTI's second interface (v2), and the tracer makes the first's"
                 : "");
    give_up(problem_code(result), result, text);
}

static int watch(void)
{
    const char *function = "cuptiSubscribe";
    CUptiResult result = library.subscribe(&subscriber, called, NULL);
    if (result != CUPTI_SUCCESS) {
        cupti_failed(function, result);
        return 0;
    }
    for (unsigned i = 0; i < calls_watched_count; i++) {
        CUptiResult enabled = library.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, calls_watched[i]);
        if (i == 0 && enabled != CUPTI_SUCCESS) {
            function = "cuptiEnableCallback";
            result = enabled;
        }
    }
    for (unsigned i = 0; i < graphs_watched_count; i++)
        library.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, graphs_watched[i]);
    library.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_CREATED);
    library.enable_callback(1, subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING);
    if (result == CUPTI_SUCCESS) {
        function = "cuptiActivityRegisterCallbacks";
        result = library.register_callbacks(buffer_requested, buffer_completed);
    }
    if (result == CUPTI_SUCCESS) {
        function = "cuptiActivityEnable";
        result = library.enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    }
    if (result == CUPTI_SUCCESS) return 1;
    library.unsubscribe(subscriber);
    cupti_failed(function, result);
    return 0;
}

/* Our thread must not receive the workload's signals. */
static int start_sender(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&sender, NULL, send_until_stopped, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !failed;
}

static void make_conditions(void)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&work, &monotonic);
    pthread_cond_init(&room, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static void begin(void)
{
    char problem[512] = "";
    const char *path = getenv("ASSAY_TRACER_SOCKET");
    if (!path || !*path || !output_open(path, milliseconds("ASSAY_TRACER_STALL_MS", DEFAULT_STALL_MS))) return;
    owner = getpid();
    wait_limit_ns = milliseconds("ASSAY_TRACER_WAIT_MS", DEFAULT_WAIT_MS) * 1000000;
    flush_ms = milliseconds("ASSAY_TRACER_FLUSH_MS", DEFAULT_FLUSH_MS);
    make_conditions();
    int code = cupti_library_open(&library, problem, sizeof problem);
    send_hello();
    if (code) {
        give_up((uint32_t)code, CUPTI_SUCCESS, problem);
        return;
    }
    forks_watch();
    pthread_atfork(NULL, NULL, end_in_child);
    __atomic_store_n(&tracing, 1, __ATOMIC_RELAXED);
    if (!watch()) {
        __atomic_store_n(&tracing, 0, __ATOMIC_RELAXED);
        return;
    }
    exits_begin(finish); /* before our thread, which looks again */
    if (!contexts_begin(collect, milliseconds("ASSAY_TRACER_SYNC_MS", DEFAULT_SYNC_MS)) || !start_sender()) {
        __atomic_store_n(&tracing, 0, __ATOMIC_RELAXED);
        library.unsubscribe(subscriber);
        give_up(ASSAY_PROBLEM_NO_MEMORY, CUPTI_SUCCESS, "no thread could be started");
        return;
    }
    atexit(finish);
}

/* CUDA calls it in the first cuInit of the process. Errors here never stop the process. */
__attribute__((visibility("default"))) int InitializeInjection(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin);
    return 1;
}
