/* A program that launches made-up kernels through the fake CUPTI, under real NVTX ranges.
 *
 *   workload launches=N [threads=T] [graphs=G] [nodes=M] [captured=C] [failing=F] [nvtx=1] [pause_us=P] [every=E]
 *            [child=fork|exec] [end=_exit]
 *
 * Every G-th call is a graph launch of M nodes, every C-th one goes into a capture, every F-th one fails (by
 * correlation ID). After each E calls a thread pauses P microseconds. It prints what it did as one line of JSON.
 */
#define _GNU_SOURCE
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fake_cupti.h"

static unsigned long launches, threads = 1, graphs, nodes = 4, captured, failing, nvtx, pause_us, every = 1000;

static enum fake_call rule(uint32_t correlation)
{
    if (graphs && correlation % graphs == 0) return FAKE_GRAPH;
    if (captured && correlation % captured == 0) return FAKE_CAPTURED;
    if (failing && correlation % failing == 0) return FAKE_FAILING;
    return FAKE_KERNEL;
}

static void *launch_all(void *unused)
{
    (void)unused;
    char text[128];
    for (unsigned long i = 0; i < launches / threads; i++) {
        if (nvtx) {
            nvtxRangePushA(i % 2 ? "backward" : "forward");
            snprintf(text, sizeof text, "aten::mm, seq = %lu, op_id = %lu, sizes = [[2, %lu], [%lu, 4]]", i, i + 7,
                     i % 3, i % 3);
            nvtxRangePushA(text);
        }
        fake_call(rule, (uint32_t)nodes);
        if (nvtx) {
            nvtxRangePop();
            nvtxRangePop();
        }
        if (pause_us && i % every == every - 1) usleep((useconds_t)pause_us);
    }
    return NULL;
}

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* The peak of this program alone: ru_maxrss also counts the one that started it. */
static long peak_kib(void)
{
    char line[256];
    long peak = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "VmHWM: %ld", &peak);
    if (file) fclose(file);
    return peak;
}

static void child(const char *how, char **arguments)
{
    pid_t process = fork();
    if (process == 0 && strcmp(how, "exec") == 0) {
        execv("/proc/self/exe", arguments);
        _exit(97);
    }
    if (process == 0) exit(0); /* its exit handlers run, as in a worker that forgets to use _exit */
    waitpid(process, NULL, 0);
}

int main(int count, char **arguments)
{
    const char *children = NULL, *end = "";
    struct {
        const char *name;
        unsigned long *value;
    } known[] = {{"launches", &launches}, {"threads", &threads}, {"graphs", &graphs}, {"nodes", &nodes},
                 {"captured", &captured}, {"failing", &failing}, {"nvtx", &nvtx}, {"pause_us", &pause_us},
                 {"every", &every}};
    for (int i = 1; i < count; i++) {
        char *value = strchr(arguments[i], '=');
        if (!value) continue;
        if (strncmp(arguments[i], "child=", 6) == 0) children = value + 1;
        if (strncmp(arguments[i], "end=", 4) == 0) end = value + 1;
        for (size_t j = 0; j < sizeof known / sizeof *known; j++)
            if (strlen(known[j].name) == (size_t)(value - arguments[i])
                && strncmp(arguments[i], known[j].name, (size_t)(value - arguments[i])) == 0)
                *known[j].value = strtoul(value + 1, NULL, 10);
    }
    fake_init();
    if (captured) fake_begin_capture();
    long before_kib = peak_kib();
    double began = seconds();
    pthread_t others[64];
    for (unsigned long i = 1; i < threads; i++) pthread_create(&others[i], NULL, launch_all, NULL);
    launch_all(NULL);
    for (unsigned long i = 1; i < threads; i++) pthread_join(others[i], NULL);
    double taken = seconds() - began;
    if (children) {
        char *again[] = {arguments[0], (char *)"launches=100", NULL};
        child(children, again);
    }
    uint64_t recorded, dropped;
    fake_counts(&recorded, &dropped);
    printf("{\"process\": %d, \"seconds\": %.6f, \"recorded\": %llu, \"dropped\": %llu, \"peak_kib\": %ld, "
           "\"before_kib\": %ld}\n",
           (int)getpid(), taken, (unsigned long long)recorded, (unsigned long long)dropped, peak_kib(), before_kib);
    fflush(stdout);
    if (strcmp(end, "_exit") == 0) _exit(0);
    return 0;
}
