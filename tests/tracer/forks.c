/* Two threads push and pop NVTX ranges while the first one forks children, which push ranges too: 'forks COUNT'.
 *
 * It prints how many children had not ended after ten seconds, and ends them.
 */
#define _GNU_SOURCE
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int stop;

static void *push_ranges(void *number)
{
    char text[64];
    for (unsigned i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
        snprintf(text, sizeof text, "range %u of %p", i % 20000, number);
        nvtxRangePushA(text);
        nvtxRangePop();
    }
    return NULL;
}

static int ended(pid_t process)
{
    struct timespec pause = {0, 1000000};
    for (int i = 0; i < 10000; i++) {
        int status;
        if (waitpid(process, &status, WNOHANG) == process) return 1;
        nanosleep(&pause, NULL);
    }
    kill(process, SIGKILL);
    waitpid(process, NULL, 0);
    return 0;
}

int main(int count, char **arguments)
{
    int forks = count > 1 ? atoi(arguments[1]) : 60, hung = 0;
    pthread_t threads[2];
    nvtxRangePushA("main");
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, push_ranges, (void *)(i + 1));
    for (int i = 0; i < forks; i++) {
        pid_t process = fork();
        if (process == 0) {
            nvtxRangePushA("range of a child");
            nvtxRangePop();
            _exit(0);
        }
        hung += !ended(process);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("%d of %d hung\n", hung, forks);
    return 0;
}
