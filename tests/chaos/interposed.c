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
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITES = 1, SYNCS = 2, CHANGES = 4, READS = 8 };

struct control {
    int64_t clock_offset_ns;
    int32_t operations; /* which of the above have a fault */
    int32_t error;      /* the errno that they return; 0: none */
    int32_t every;      /* only each of so many */
    int32_t sleep_ms;   /* before they begin */
    int32_t torn;       /* so many writes are cut in half, and the process is killed */
    int32_t spare;
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

int clock_gettime(clockid_t which, struct timespec *found)
{
    begin();
    int answer = real_clock_gettime(which, found);
    if (answer || !control || !control->clock_offset_ns)
        return answer;
    if (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE) {
        int64_t all = (int64_t)found->tv_sec * 1000000000 + found->tv_nsec + control->clock_offset_ns;
        found->tv_sec = all / 1000000000;
        found->tv_nsec = all % 1000000000;
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
