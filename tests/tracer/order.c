/* A program with a CUDA driver but no CUPTI: which one the tracer loads is to be seen. FAKE_CUDA_VERSION: the driver's. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int cuDriverGetVersion(int *version);

int cuDriverGetVersion(int *version)
{
    const char *text = getenv("FAKE_CUDA_VERSION");
    *version = text ? atoi(text) : 13000;
    return 0;
}

int main(void)
{
    void *library = dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_NOW);
    int (*initialize)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
    if (!initialize) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    initialize();
    return 0;
}
