#define _GNU_SOURCE
#include "contexts.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "cupti_library.h"

#define MOST_CONTEXTS 256u

struct context {
    CUcontext handle;
    uint32_t device;
};

/* The helper's request. Only the helper reads it between `asked` and `done`. */
static struct {
    CUcontext contexts[MOST_CONTEXTS];
    unsigned count;
    int final;
} request;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the contexts */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* one request at a time */
static struct context live[MOST_CONTEXTS];
static unsigned live_count;
static sem_t asked, done;
static int started, busy; /* busy: the helper still works on a request that took too long */
static int64_t limit_ns;
static void (*collect)(int final);
static CUresult (*set_current)(CUcontext);
static CUresult (*synchronize)(void);
static CUresult (*exchange_mode)(CUstreamCaptureMode *);

static void *serve(void *unused)
{
    (void)unused;
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED; /* do not break the workload's captures */
    if (exchange_mode) exchange_mode(&relaxed);
    for (;;) {
        while (sem_wait(&asked) != 0) {}
        for (unsigned i = 0; set_current && synchronize && i < request.count; i++)
            if (set_current(request.contexts[i]) == CUDA_SUCCESS) synchronize();
        if (set_current) set_current(NULL);
        collect(request.final);
        sem_post(&done);
    }
    return NULL;
}

int contexts_begin(void (*collector)(int final), int64_t limit_ms)
{
    sigset_t all, before;
    pthread_t helper;
    collect = collector;
    limit_ns = limit_ms * 1000000;
    set_current = (CUresult(*)(CUcontext))cuda_driver_function("cuCtxSetCurrent");
    synchronize = (CUresult(*)(void))cuda_driver_function("cuCtxSynchronize");
    exchange_mode = (CUresult(*)(CUstreamCaptureMode *))cuda_driver_function("cuThreadExchangeStreamCaptureMode");
    sem_init(&asked, 0, 0);
    sem_init(&done, 0, 0);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    started = pthread_create(&helper, NULL, serve, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started) pthread_detach(helper);
    return started;
}

void contexts_created(CUcontext context, uint32_t device)
{
    pthread_mutex_lock(&lock);
    if (live_count < MOST_CONTEXTS) live[live_count++] = (struct context){context, device};
    pthread_mutex_unlock(&lock);
}

void contexts_destroyed(CUcontext context)
{
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < live_count; i++)
        if (live[i].handle == context) live[i--] = live[--live_count];
    pthread_mutex_unlock(&lock);
}

/* Whether the helper finished within the limit. */
static int waited(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + limit_ns;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    while (sem_clockwait(&done, CLOCK_MONOTONIC, &until) != 0)
        if (errno != EINTR) return 0;
    return 1;
}

static int chosen(const struct context *context, CUcontext handle, int64_t device)
{
    return handle ? context->handle == handle : device < 0 || context->device == (uint32_t)device;
}

/* Of one context, or those of a device, or (NULL, -1) all. */
static int finish(CUcontext handle, int64_t device)
{
    int in_time = 0;
    pthread_mutex_lock(&turn);
    /* A reset does not wait for a late helper; the end of the process waits once more. */
    if (busy && (!handle && device < 0 ? waited() : sem_trywait(&done) == 0)) busy = 0;
    if (started && !busy) {
        pthread_mutex_lock(&lock);
        request.count = 0;
        request.final = !handle && device < 0;
        for (unsigned i = 0; i < live_count; i++)
            if (chosen(&live[i], handle, device)) request.contexts[request.count++] = live[i].handle;
        pthread_mutex_unlock(&lock);
        in_time = !request.count && !request.final;
        if (!in_time) {
            sem_post(&asked);
            in_time = waited();
            busy = !in_time;
        }
    }
    pthread_mutex_unlock(&turn);
    return in_time;
}

int contexts_finish_one(CUcontext context)
{
    return !context || finish(context, -1);
}

int contexts_finish_device(uint32_t device)
{
    return finish(NULL, device);
}

int contexts_finish_all(void)
{
    return finish(NULL, -1);
}
