#define _GNU_SOURCE
#include "cupti_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The record by version of CUPTI. Versions count up to 28 (CUDA 12.9 update 1), then are xxyyzz from CUDA 13.0.
 * Sizes from 13.0 on are what cuptiActivityGetStructSize of 13.5 says of each version. 11.8 and 12.0 are read as
 * the older of the two structures that they may write: each version only adds fields at the end.
 */
struct layout {
    uint32_t first_version, layout;
    size_t bytes;
};

/* The newest version whose record both these headers and this table know. Updates of a release (the last two digits)
 * keep its record. */
#define NEWEST_IN_TABLE 130500
#define NEWEST_KNOWN (CUPTI_API_VERSION < NEWEST_IN_TABLE ? CUPTI_API_VERSION : NEWEST_IN_TABLE)

static const struct layout layouts[] = {
    {18, 8, sizeof(CUpti_ActivityKernel8)},
    {20, 9, sizeof(CUpti_ActivityKernel9)},
#if CUPTI_API_VERSION >= 130000
    {130000, 10, sizeof(CUpti_ActivityKernel10)},
#endif
#if CUPTI_API_VERSION >= 130100
    {130100, 11, sizeof(CUpti_ActivityKernel11)},
#endif
#if CUPTI_API_VERSION >= 130300
    {130300, 12, sizeof(CUpti_ActivityKernel12)},
#endif
#if CUPTI_API_VERSION >= 130400
    {130400, 13, sizeof(CUpti_ActivityKernel13)},
#endif
};

/* If the process already has a CUPTI, as with PyTorch, it must be used: two would conflict. */
static int find_loaded(struct dl_phdr_info *information, size_t size, void *found)
{
    (void)size;
    const char *name = strrchr(information->dlpi_name ? information->dlpi_name : "", '/');
    if (name && strncmp(name + 1, "libcupti.so", 11) == 0) {
        snprintf(found, 4096, "%s", information->dlpi_name);
        return 1;
    }
    return 0;
}

/* The oldest GPUs (compute capability, times ten) that CUPTI of CUDA 13 knows: Volta's last one is that of 12.9. */
#define OLDEST_OF_13 75

/* CUPTI of CUDA 13 works neither with a driver of CUDA 12 nor with a GPU older than Turing. The agent names the oldest
 * GPU of the run: the driver cannot be asked, as it is being initialised. */
static int takes_13(int driver)
{
    const char *text = getenv("ASSAY_TRACER_COMPUTE_CAPABILITY");
    int major = 0, minor = 0;
    if (text && sscanf(text, "%d.%d", &major, &minor) >= 1 && major && 10 * major + minor < OLDEST_OF_13) return 0;
    return driver == 0 || driver >= 13000;
}

static void *open_fitting(const char *path, int driver)
{
    if (!*path || (strstr(path, "libcupti.so.13") && !takes_13(driver))) return NULL;
    return dlopen(path, RTLD_NOW);
}

static void *open_matching(const char *pattern, int driver)
{
    glob_t found;
    void *handle = NULL;
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = found.gl_pathc; i-- > 0 && !handle;) handle = open_fitting(found.gl_pathv[i], driver);
        globfree(&found);
    }
    return handle;
}

/* The driver may have been loaded for one library only, so its functions are looked up in it by name. */
void *cuda_driver_function(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return dlsym(driver ? driver : RTLD_DEFAULT, name);
}

/* Of the paths that the agent names, joined by ':', the first that fits and loads. */
static void *open_of(const char *paths, int driver)
{
    char path[4096];
    void *handle = NULL;
    while (paths && *paths && !handle) {
        size_t bytes = strcspn(paths, ":");
        snprintf(path, sizeof path, "%.*s", (int)bytes, paths);
        handle = open_fitting(path, driver);
        paths += bytes + (paths[bytes] == ':');
    }
    return handle;
}

static void *open_library(void)
{
    char loaded[4096] = "";
    if (dl_iterate_phdr(find_loaded, loaded)) return dlopen(loaded, RTLD_NOW);
    const char *given = getenv("ASSAY_TRACER_CUPTI");
    if (given && *given) return dlopen(given, RTLD_NOW);
    int (*driver_version)(int *) = (int (*)(int *))cuda_driver_function("cuDriverGetVersion");
    int driver = 0;
    if (driver_version) driver_version(&driver);
    void *handle = NULL;
    if (takes_13(driver)) handle = dlopen("libcupti.so.13", RTLD_NOW);
    if (!handle) handle = dlopen("libcupti.so.12", RTLD_NOW);
    if (!handle) handle = dlopen("libcupti.so.11.8", RTLD_NOW);
    const char *home = getenv("CUDA_HOME");
    if (!handle && home && *home) {
        char pattern[4096];
        snprintf(pattern, sizeof pattern, "%s/extras/CUPTI/lib64/libcupti.so.1[123]*", home);
        handle = open_matching(pattern, driver);
    }
    if (!handle) handle = open_matching("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.1[123]*", driver);
    if (!handle) handle = open_matching("/usr/local/cuda/lib64/libcupti.so.1[123]*", driver);
    if (!handle) handle = open_matching("/usr/local/cuda-1[123]*/extras/CUPTI/lib64/libcupti.so.1[123]*", driver);
    if (!handle) handle = open_of(getenv("ASSAY_TRACER_CUPTI_ELSE"), driver);
    return handle;
}

struct symbol {
    const char *name;
    size_t offset;
    int needed;
};

#define SYMBOL(name, field, needed) {name, offsetof(struct cupti_library, field), needed}

static const struct symbol symbols[] = {
    SYMBOL("cuptiGetVersion", get_version, 1),
    SYMBOL("cuptiGetResultString", result_string, 1),
    SYMBOL("cuptiGetTimestamp", timestamp, 1),
    SYMBOL("cuptiSubscribe", subscribe, 1),
    SYMBOL("cuptiUnsubscribe", unsubscribe, 1),
    SYMBOL("cuptiEnableCallback", enable_callback, 1),
    SYMBOL("cuptiActivityEnable", enable, 1),
    SYMBOL("cuptiActivityDisable", disable, 1),
    SYMBOL("cuptiActivityRegisterCallbacks", register_callbacks, 1),
    SYMBOL("cuptiActivityGetNextRecord", next_record, 1),
    SYMBOL("cuptiActivityGetNumDroppedRecords", dropped, 1),
    SYMBOL("cuptiActivityFlushAll", flush, 1),
    SYMBOL("cuptiGetDeviceId", device_of, 0),
    SYMBOL("cuptiActivityGetStructSize", struct_size, 0),
};

static int choose_layout(struct cupti_library *library, char *problem, size_t problem_bytes)
{
    const struct layout *chosen = NULL;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].first_version <= library->version) chosen = &layouts[i];
    if (!chosen) {
        snprintf(problem, problem_bytes, "CUPTI has version %u, and the oldest that is read is %u (CUDA 11.8)",
                 library->version, layouts[0].first_version);
        return ASSAY_PROBLEM_CUPTI_OLDER;
    }
    /* CUPTI's word on the size decides: a newer release whose record has the known size only names its padding. */
    size_t bytes = 0;
    int says = library->struct_size
        && library->struct_size(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 0, &bytes) == CUPTI_SUCCESS;
    if (library->version / 100 > NEWEST_KNOWN / 100 && (!says || bytes != chosen->bytes)) {
        char size[64] = "";
        if (says) snprintf(size, sizeof size, " with kernel records of %zu bytes", bytes);
        snprintf(problem, problem_bytes, "CUPTI has version %u%s, and this build knows versions up to %u",
                 library->version, size, (unsigned)NEWEST_KNOWN);
        return ASSAY_PROBLEM_CUPTI_NEWER;
    }
    if (says && bytes != chosen->bytes) {
        snprintf(problem, problem_bytes, "CUPTI %u says that its kernel record has %zu bytes, and %zu are expected",
                 library->version, bytes, chosen->bytes);
        return ASSAY_PROBLEM_LAYOUT;
    }
    library->layout = chosen->layout;
    return 0;
}

uint32_t cupti_library_newest(void)
{
    return NEWEST_KNOWN;
}

int cupti_library_open(struct cupti_library *library, char *problem, size_t problem_bytes)
{
    memset(library, 0, sizeof *library);
    void *handle = open_library();
    if (!handle) {
        const char *why = dlerror();
        int said = snprintf(problem, problem_bytes, "no libcupti can be loaded (%s)", why ? why : "none was found");
        if (!takes_13(0) && said > 0 && (size_t)said < problem_bytes)
            snprintf(problem + said, problem_bytes - (size_t)said, "; compute capability %s needs one of CUDA 12",
                     getenv("ASSAY_TRACER_COMPUTE_CAPABILITY"));
        return ASSAY_PROBLEM_NO_CUPTI;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(handle, symbols[i].name);
        if (!address && symbols[i].needed) {
            snprintf(problem, problem_bytes, "the libcupti that was loaded has no function %s", symbols[i].name);
            return ASSAY_PROBLEM_NO_CUPTI;
        }
        memcpy((char *)library + symbols[i].offset, &address, sizeof address);
    }
    CUptiResult result = library->get_version(&library->version);
    if (result != CUPTI_SUCCESS) {
        snprintf(problem, problem_bytes, "CUPTI does not say its version (error %d)", (int)result);
        return ASSAY_PROBLEM_CUPTI_FAILED;
    }
    return choose_layout(library, problem, problem_bytes);
}

#define READ_FIELDS(record, kernel)                                       \
    do {                                                                  \
        (kernel)->start_ns = (record)->start;                             \
        (kernel)->end_ns = (record)->end;                                 \
        (kernel)->graph_node = (record)->graphNodeId;                     \
        (kernel)->graph = (record)->graphId;                              \
        (kernel)->device = (record)->deviceId;                            \
        (kernel)->context = (record)->contextId;                          \
        (kernel)->stream = (record)->streamId;                            \
        (kernel)->grid[0] = (record)->gridX;                              \
        (kernel)->grid[1] = (record)->gridY;                              \
        (kernel)->grid[2] = (record)->gridZ;                              \
        (kernel)->block[0] = (record)->blockX;                            \
        (kernel)->block[1] = (record)->blockY;                            \
        (kernel)->block[2] = (record)->blockZ;                            \
        (kernel)->registers_per_thread = (record)->registersPerThread;    \
        (kernel)->static_shared_bytes = (record)->staticSharedMemory;     \
        (kernel)->dynamic_shared_bytes = (record)->dynamicSharedMemory;   \
        *name = (record)->name;                                           \
        *correlation = (record)->correlationId;                           \
    } while (0)

void cupti_library_read(const struct cupti_library *library, const CUpti_Activity *record,
                        struct assay_kernel *kernel, const char **name, uint32_t *correlation)
{
    memset(kernel, 0, sizeof *kernel);
    switch (library->layout) {
    case 8: READ_FIELDS((const CUpti_ActivityKernel8 *)record, kernel); break;
    case 9: READ_FIELDS((const CUpti_ActivityKernel9 *)record, kernel); break;
#if CUPTI_API_VERSION >= 130000
    case 10:
        READ_FIELDS((const CUpti_ActivityKernel10 *)record, kernel);
        kernel->flags |= ((const CUpti_ActivityKernel10 *)record)->isDeviceLaunched ? ASSAY_KERNEL_DEVICE_LAUNCHED : 0;
        break;
#endif
#if CUPTI_API_VERSION >= 130100
    case 11:
        READ_FIELDS((const CUpti_ActivityKernel11 *)record, kernel);
        kernel->flags |= ((const CUpti_ActivityKernel11 *)record)->isDeviceLaunched ? ASSAY_KERNEL_DEVICE_LAUNCHED : 0;
        break;
#endif
#if CUPTI_API_VERSION >= 130300
    case 12:
        READ_FIELDS((const CUpti_ActivityKernel12 *)record, kernel);
        kernel->flags |= ((const CUpti_ActivityKernel12 *)record)->isDeviceLaunched ? ASSAY_KERNEL_DEVICE_LAUNCHED : 0;
        break;
#endif
#if CUPTI_API_VERSION >= 130400
    case 13:
        READ_FIELDS((const CUpti_ActivityKernel13 *)record, kernel);
        kernel->flags |= ((const CUpti_ActivityKernel13 *)record)->isDeviceLaunched ? ASSAY_KERNEL_DEVICE_LAUNCHED : 0;
        break;
#endif
    default: *name = NULL; *correlation = 0; break;
    }
}
