/* Faults of disk and clock for one process and its children, by LD_PRELOAD; see interposing.py.
 *
 * ASSAY_CHAOS_CONTROL names a file of struct control, which the lab changes while the process runs, and
 * ASSAY_CHAOS_FOLDER the folder whose files are meant. Counters say what took hold.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITES = 1, SYNCS = 2, CHANGES = 4, READS = 8 };

struct control {
    int64_t clock_offset_ns;
    _Atomic int64_t passed_ns; /* time that passed at once: on all clocks, and in waits */
    int32_t operations; /* which of the above have a fault */
    int32_t error;      /* the errno that they return; 0: none */
    int32_t every;      /* only each of so many */
    int32_t sleep_ms;   /* before they begin */
    int32_t torn;       /* so many writes are cut in half, and the process is killed */
    int32_t look_ms;    /* how often waits see that time has passed; 0: waits are left alone */
    char part[64];      /* only paths that contain this */
    _Atomic uint64_t clock_reads, matched, failed, slept, tears;
};

static struct control *control;
static const char *folder;
static size_t folder_length;

static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_read)(int, void *, size_t), (*real_pread)(int, void *, size_t, off_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static int (*real_fsync)(int), (*real_fdatasync)(int), (*real_ftruncate)(int, off_t);
static int (*real_open)(const char *, int, ...), (*real_openat)(int, const char *, int, ...);
static int (*real_rename)(const char *, const char *), (*real_mkdir)(const char *, mode_t);
static int (*real_unlink)(const char *);
static int (*real_clock_gettime)(clockid_t, struct timespec *);

/* Called before anything else: constructors of other libraries may call what stands here. */
__attribute__((constructor)) static void begin(void)
{
    if (real_clock_gettime)
        return;
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_writev = dlsym(RTLD_NEXT, "writev");
    real_read = dlsym(RTLD_NEXT, "read");
    real_pread = dlsym(RTLD_NEXT, "pread64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_ftruncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_open = dlsym(RTLD_NEXT, "open64");
    real_openat = dlsym(RTLD_NEXT, "openat64");
    real_rename = dlsym(RTLD_NEXT, "rename");
    real_mkdir = dlsym(RTLD_NEXT, "mkdir");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("ASSAY_CHAOS_CONTROL");
    folder = getenv("ASSAY_CHAOS_FOLDER");
    if (!path || !folder)
        return;
    folder = strdup(folder); /* PostgreSQL writes its title over its environment */
    folder_length = strlen(folder);
    int file = real_open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        control = mapped;
}

static int meant(const char *path)
{
    if (strncmp(path, folder, folder_length) != 0)
        return 0;
    return !control->part[0] || strstr(path + folder_length, control->part) != NULL;
}

static int path_of(int file, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return 1;
}

/* Nonzero, with errno set: the operation fails. */
static int fails(int operation, const char *path)
{
    if (!meant(path))
        return 0;
    uint64_t number = atomic_fetch_add(&control->matched, 1);
    if (control->sleep_ms) {
        struct timespec span = {control->sleep_ms / 1000, control->sleep_ms % 1000 * 1000000L};
        nanosleep(&span, NULL);
        atomic_fetch_add(&control->slept, 1);
    }
    int every = control->every > 1 ? control->every : 1;
    int error = control->error;
    if (!error || !(control->operations & operation) || number % every != 0)
        return 0;
    atomic_fetch_add(&control->failed, 1);
    errno = error;
    return 1;
}

static int armed(int operation)
{
    begin();
    return control && (control->operations & operation);
}

static int file_fails(int operation, int file)
{
    char path[PATH_MAX];
    return armed(operation) && path_of(file, path) && fails(operation, path);
}

/* Cut a write in half and die, as when the power goes. */
static void tear(int file, const void *data, size_t size, off_t offset)
{
    char path[PATH_MAX];
    if (!control || control->torn <= 0 || size < 2 || !path_of(file, path) || !meant(path))
        return;
    control->torn--;
    if (offset < 0)
        real_write(file, data, size / 2);
    else
        real_pwrite(file, data, size / 2, offset);
    atomic_fetch_add(&control->tears, 1);
    kill(getpid(), SIGKILL);
}

ssize_t write(int file, const void *data, size_t size)
{
    begin();
    tear(file, data, size, -1);
    return file_fails(WRITES, file) ? -1 : real_write(file, data, size);
}

ssize_t writev(int file, const struct iovec *parts, int count)
{
    begin();
    if (count > 0)
        tear(file, parts[0].iov_base, parts[0].iov_len, -1);
    return file_fails(WRITES, file) ? -1 : real_writev(file, parts, count);
}

ssize_t pwrite64(int file, const void *data, size_t size, off_t offset)
{
    begin();
    tear(file, data, size, offset);
    return file_fails(WRITES, file) ? -1 : real_pwrite(file, data, size, offset);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t offset) { return pwrite64(file, data, size, offset); }

ssize_t read(int file, void *data, size_t size)
{
    begin();
    return file_fails(READS, file) ? -1 : real_read(file, data, size);
}

ssize_t pread64(int file, void *data, size_t size, off_t offset)
{
    begin();
    return file_fails(READS, file) ? -1 : real_pread(file, data, size, offset);
}

ssize_t pread(int file, void *data, size_t size, off_t offset) { return pread64(file, data, size, offset); }

int fsync(int file) { return file_fails(SYNCS, file) ? -1 : real_fsync(file); }

int fdatasync(int file) { return file_fails(SYNCS, file) ? -1 : real_fdatasync(file); }

int ftruncate64(int file, off_t size) { return file_fails(CHANGES, file) ? -1 : real_ftruncate(file, size); }

int ftruncate(int file, off_t size) { return ftruncate64(file, size); }

static int opening_fails(const char *path, int flags)
{
    return armed(CHANGES) && (flags & (O_WRONLY | O_RDWR | O_CREAT)) && fails(CHANGES, path);
}

static mode_t mode_of(int flags, va_list rest)
{
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
}

#define MODE(flags)                                                                                            \
    va_list rest;                                                                                              \
    va_start(rest, flags);                                                                                     \
    mode_t mode = mode_of(flags, rest);                                                                        \
    va_end(rest)

int open64(const char *path, int flags, ...)
{
    MODE(flags);
    return opening_fails(path, flags) ? -1 : real_open(path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    MODE(flags);
    return opening_fails(path, flags) ? -1 : real_open(path, flags, mode);
}

int openat64(int folder_file, const char *path, int flags, ...)
{
    MODE(flags);
    return path[0] == '/' && opening_fails(path, flags) ? -1 : real_openat(folder_file, path, flags, mode);
}

int openat(int folder_file, const char *path, int flags, ...)
{
    MODE(flags);
    return path[0] == '/' && opening_fails(path, flags) ? -1 : real_openat(folder_file, path, flags, mode);
}

int rename(const char *from, const char *to)
{
    return armed(CHANGES) && fails(CHANGES, to) ? -1 : real_rename(from, to);
}

int mkdir(const char *path, mode_t mode)
{
    return armed(CHANGES) && fails(CHANGES, path) ? -1 : real_mkdir(path, mode);
}

int unlink(const char *path) { return armed(CHANGES) && fails(CHANGES, path) ? -1 : real_unlink(path); }

/* Time that passes at once: whoever waits until a moment by a clock of ours waits until that moment, less what
 * has passed, by the kernel's. Waits go in pieces, so that those that had begun see it, too. */

#define SECOND_NS 1000000000LL

#define REAL(name) \
    static typeof(name) *real; \
    if (!real) \
    real = dlsym(RTLD_NEXT, #name)

static int64_t ns_of(const struct timespec *moment) { return moment->tv_sec * SECOND_NS + moment->tv_nsec; }

static struct timespec spec_of(int64_t ns)
{
    struct timespec moment = {ns / SECOND_NS, ns % SECOND_NS};
    return moment;
}

static int64_t kernel_now(clockid_t which)
{
    struct timespec now;
    real_clock_gettime(which, &now);
    return ns_of(&now);
}

static int waits_are_ours(void)
{
    begin();
    return control && control->look_ms > 0;
}

/* The end of the next piece of a wait, by the kernel's clock; *last: it is the end of the whole. */
static struct timespec piece(clockid_t which, const struct timespec *until, int *last)
{
    int64_t end = ns_of(until) - control->passed_ns;
    int64_t look = kernel_now(which) + control->look_ms * 1000000LL;
    *last = end <= look;
    return spec_of(*last ? (end > 0 ? end : 0) : look);
}

int sem_clockwait(sem_t *semaphore, clockid_t which, const struct timespec *until)
{
    REAL(sem_clockwait);
    if (!waits_are_ours())
        return real(semaphore, which, until);
    for (int last;;) {
        struct timespec end = piece(which, until, &last);
        int answer = real(semaphore, which, &end);
        if (!answer || errno != ETIMEDOUT || last)
            return answer;
    }
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until)
{
    REAL(sem_timedwait);
    return waits_are_ours() ? sem_clockwait(semaphore, CLOCK_REALTIME, until) : real(semaphore, until);
}

/* After a piece a condition is answered as if it had been signalled: a signal between two pieces would be lost. */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until)
{
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!real) /* without its version it may be that of LinuxThreads */
        real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real)
        real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    if (!waits_are_ours())
        return real(condition, mutex, until);
    int last; /* which clock it goes by is known by the moment alone: no box has been up for thirty years */
    clockid_t which = until->tv_sec > SECOND_NS ? CLOCK_REALTIME : CLOCK_MONOTONIC;
    struct timespec end = piece(which, until, &last);
    int answer = real(condition, mutex, &end);
    return answer == ETIMEDOUT && !last ? 0 : answer;
}

int pthread_cond_clockwait(
    pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t which, const struct timespec *until)
{
    REAL(pthread_cond_clockwait);
    if (!waits_are_ours())
        return real(condition, mutex, which, until);
    int last;
    struct timespec end = piece(which, until, &last);
    int answer = real(condition, mutex, which, &end);
    return answer == ETIMEDOUT && !last ? 0 : answer;
}

int clock_nanosleep(clockid_t which, int flags, const struct timespec *span, struct timespec *left)
{
    REAL(clock_nanosleep);
    if (!waits_are_ours() || !(flags & TIMER_ABSTIME))
        return real(which, flags, span, left);
    for (int last;;) {
        struct timespec end = piece(which, span, &last);
        int answer = real(which, flags, &end, left);
        if (answer || last)
            return answer;
    }
}

int epoll_wait(int file, struct epoll_event *events, int most, int timeout_ms)
{
    REAL(epoll_wait);
    if (!waits_are_ours() || timeout_ms <= 0)
        return real(file, events, most, timeout_ms);
    struct timespec until =
        spec_of(kernel_now(CLOCK_MONOTONIC) + control->passed_ns + timeout_ms * 1000000LL);
    for (int last;;) {
        struct timespec end = piece(CLOCK_MONOTONIC, &until, &last);
        int64_t rest = ns_of(&end) - kernel_now(CLOCK_MONOTONIC);
        int answer = real(file, events, most, rest > 0 ? (rest + 999999) / 1000000 : 0);
        if (answer || last)
            return answer;
    }
}

/* gRPC waits for futexes by itself. Who waits until a moment by the wall clock is woken after a piece. */
long syscall(long number, ...)
{
    REAL(syscall);
    long given[6];
    va_list list;
    va_start(list, number);
    for (int at = 0; at < 6; at++)
        given[at] = va_arg(list, long);
    va_end(list);
    int command = given[1] & FUTEX_CMD_MASK;
    struct timespec end;
    if (number == SYS_futex && command == FUTEX_WAIT_BITSET && given[3] && waits_are_ours()) {
        int last;
        clockid_t which = given[1] & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        end = piece(which, (const struct timespec *)given[3], &last);
        given[3] = (long)&end;
        long answer = real(number, given[0], given[1], given[2], given[3], given[4], given[5]);
        if (answer == -1 && errno == ETIMEDOUT && !last)
            errno = EINTR;
        return answer;
    }
    return real(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

int clock_gettime(clockid_t which, struct timespec *found)
{
    begin();
    int answer = real_clock_gettime(which, found);
    if (answer || !control)
        return answer;
    int wall = which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE;
    int64_t more_ns = 0;
    if (wall || which == CLOCK_MONOTONIC || which == CLOCK_MONOTONIC_COARSE || which == CLOCK_BOOTTIME)
        more_ns = control->passed_ns + (wall ? control->clock_offset_ns : 0);
    if (more_ns) {
        *found = spec_of(ns_of(found) + more_ns);
        atomic_fetch_add(&control->clock_reads, 1);
    }
    return 0;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone)
{
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *found)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found)
        *found = now.tv_sec;
    return now.tv_sec;
}
