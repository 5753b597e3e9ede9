/* A program that launches made-up kernels through the fake CUPTI, under real NVTX ranges.
 *
 *   workload launches=N [threads=T] [graphs=G] [nodes=M] [captured=C] [failing=F] [nvtx=1|2] [pause_us=P] [every=E]
 *            [graph=plain|nested|conditional|disabled] [devices=D] [reset=R] [reset_device=D]
 *            [children=K] [child=fork|exec|worker] [aside=fork|vfork] [alarm_ms=A] [loads=PATH]
 *            [end=exit|_exit|_Exit|quick_exit|kill|system_call|within|library]
 *
 * Every G-th call is a graph launch of M kernels, every C-th one goes into a capture, every F-th one fails (by
 * correlation ID). After each E calls a thread pauses P microseconds, after each R its device (or this one) is reset. Threads take
 * devices in turn. It prints what it did as one line of JSON. Of K children 'fork' ends at once and 'exec' runs this
 * program with 100 launches; a 'worker' uses CUDA instead of its parent, as Python's multiprocessing does, and ends
 * as 'end' says. After each 20 calls of the first thread a child that is made 'aside' fails to execute a program and
 * calls _exit. After A milliseconds a signal comes whose handler calls _exit(7). The end 'within' is such a handler's
 * while CUPTI has its lock, the end 'library' that of slow_library.c, which is loaded before the first launch.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fake_cupti.h"

static unsigned long launches, threads = 1, graphs, nodes = 4, captured, failing, nvtx, pause_us, every = 1000;
static unsigned long devices = 1, reset, reset_device = ULONG_MAX, children = 1, alarm_ms;
static const char *graph = "plain", *child = "", *end = "exit", *aside = "", *library = "";
static void (*leave_slowly)(int);

static enum fake_call rule(uint32_t correlation)
{
    if (graphs && correlation % graphs == 0) return FAKE_GRAPH;
    if (captured && correlation % captured == 0) return FAKE_CAPTURED;
    if (failing && correlation % failing == 0) return FAKE_FAILING;
    return FAKE_KERNEL;
}

/* NVTX version 2 is a library; NVTX2_LIBRARY names it. */
static int (*push2)(const char *), (*pop2)(void);

static void use_nvtx2(void)
{
    void *library = dlopen(getenv("NVTX2_LIBRARY"), RTLD_NOW);
    push2 = library ? (int (*)(const char *))dlsym(library, "nvtxRangePushA") : NULL;
    pop2 = library ? (int (*)(void))dlsym(library, "nvtxRangePop") : NULL;
    if (!push2 || !pop2) exit(98);
}

static void make_child_aside(void)
{
    char *const words[] = {(char *)(uintptr_t)"/nobody", NULL};
    int status = -1;
    pid_t process = strcmp(aside, "vfork") == 0 ? vfork() : fork();
    if (process == 0) {
        execv(words[0], words);
        _exit(3);
    }
    if (waitpid(process, &status, 0) != process || !WIFEXITED(status) || WEXITSTATUS(status) != 3) abort();
}

static void *launch_all(void *thread)
{
    char text[128];
    unsigned long device = (uintptr_t)thread % devices;
    fake_use_device((unsigned)device);
    for (unsigned long i = 0; i < launches / threads; i++) {
        if (nvtx == 2) {
            push2(i % 2 ? "backward" : "forward");
        } else if (nvtx) {
            nvtxRangePushA(i % 2 ? "backward" : "forward");
            snprintf(text, sizeof text, "aten::mm, seq = %lu, op_id = %lu, sizes = [[2, %lu], [%lu, 4]]", i, i + 7,
                     i % 3, i % 3);
            nvtxRangePushA(text);
        }
        fake_call(rule);
        if (*aside && !thread && i % 20 == 19) make_child_aside();
        if (nvtx == 2) {
            pop2();
        } else if (nvtx) {
            nvtxRangePop();
            nvtxRangePop();
        }
        if (reset && i % reset == reset - 1 && (reset_device == ULONG_MAX || reset_device == device)) fake_reset();
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

static void leave(void)
{
    _exit(0);
}

static void leave_at(int number)
{
    (void)number;
    _exit(7);
}

static void finish(void)
{
    if (strcmp(end, "library") == 0) leave_slowly(0);
    if (strcmp(end, "within") == 0) fake_within(leave);
    if (strcmp(end, "_exit") == 0) _exit(0);
    if (strcmp(end, "_Exit") == 0) _Exit(0);
    if (strcmp(end, "quick_exit") == 0) quick_exit(0);
    if (strcmp(end, "kill") == 0) kill(getpid(), SIGKILL);
    if (strcmp(end, "system_call") == 0) syscall(SYS_exit_group, 0);
    exit(0);
}

static void work(void)
{
    static const char *const kinds[] = {"plain", "nested", "conditional", "disabled"};
    pthread_t others[64];
    fake_init();
    if (alarm_ms) {
        struct itimerval after = {{0, 0}, {(time_t)(alarm_ms / 1000), (suseconds_t)(alarm_ms % 1000 * 1000)}};
        signal(SIGALRM, leave_at);
        setitimer(ITIMER_REAL, &after, NULL);
    }
    if (nvtx == 2) use_nvtx2();
    if (*library) {
        void *slow = dlopen(library, RTLD_LAZY);
        leave_slowly = slow ? (void (*)(int))dlsym(slow, "leave_slowly") : NULL;
        if (!leave_slowly) exit(98);
    }
    for (unsigned i = 0; graphs && i < 4; i++)
        if (strcmp(graph, kinds[i]) == 0) fake_make_graph((enum fake_graph)i, (uint32_t)nodes);
    if (captured) fake_begin_capture();
    for (uintptr_t i = 1; i < threads; i++) pthread_create(&others[i], NULL, launch_all, (void *)i);
    launch_all(NULL);
    for (unsigned long i = 1; i < threads; i++) pthread_join(others[i], NULL);
}

static void start_child(const char *program)
{
    char *again[] = {(char *)(uintptr_t)program, (char *)"launches=100", NULL};
    pid_t process = fork();
    if (process == 0 && strcmp(child, "exec") == 0) {
        execv(program, again);
        _exit(97);
    }
    if (process == 0 && strcmp(child, "worker") == 0) {
        work();
        finish();
    }
    if (process == 0) exit(0); /* its exit handlers run, as in a worker that forgets to use _exit */
    waitpid(process, NULL, 0);
}

static void take(const char *word)
{
    struct {
        const char *name;
        unsigned long *value;
    } known[] = {{"launches", &launches}, {"threads", &threads}, {"graphs", &graphs}, {"nodes", &nodes},
                 {"captured", &captured}, {"failing", &failing}, {"nvtx", &nvtx}, {"pause_us", &pause_us},
                 {"every", &every}, {"devices", &devices}, {"reset", &reset}, {"reset_device", &reset_device},
                 {"children", &children}, {"alarm_ms", &alarm_ms}};
    const char *value = strchr(word, '=');
    if (!value) return;
    size_t bytes = (size_t)(value - word);
    if (strncmp(word, "child=", 6) == 0) child = value + 1;
    if (strncmp(word, "loads=", 6) == 0) library = value + 1;
    if (strncmp(word, "aside=", 6) == 0) aside = value + 1;
    if (strncmp(word, "end=", 4) == 0) end = value + 1;
    if (strncmp(word, "graph=", 6) == 0) graph = value + 1;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].name) == bytes && strncmp(word, known[i].name, bytes) == 0)
            *known[i].value = strtoul(value + 1, NULL, 10);
}

int main(int count, char **arguments)
{
    for (int i = 1; i < count; i++) take(arguments[i]);
    int by_workers = strcmp(child, "worker") == 0;
    long before_kib = peak_kib();
    double began = seconds();
    if (!by_workers) work();
    double taken = seconds() - began;
    for (unsigned long i = 0; *child && i < children; i++) start_child(arguments[0]);
    uint64_t recorded, dropped;
    fake_counts(&recorded, &dropped);
    printf("{\"process\": %d, \"seconds\": %.6f, \"recorded\": %llu, \"dropped\": %llu, \"peak_kib\": %ld, "
           "\"before_kib\": %ld}\n",
           (int)getpid(), taken, (unsigned long long)recorded, (unsigned long long)dropped, peak_kib(), before_kib);
    fflush(stdout);
    if (!by_workers) finish();
    return 0;
}
