/* A child must find no lock that another thread of its parent held. It pushes ranges; the other locks are for what it
 * does not do, and are left alone: CUPTI holds its own at a fork, and when it asks us for a buffer. */
#include "forks.h"

#include <pthread.h>

#include "exits.h"
#include "names.h"

static void before_fork(void)
{
    exits_lock();
    names_lock();
}

static void after_fork(void)
{
    names_unlock();
    exits_unlock();
}

static void watch(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
}

void forks_watch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch);
}
