/* A library that uses CUDA while it is being linked: its table has the address of _exit not yet.
 *
 * The resolver of an indirect function runs then. It may call what was linked before it, by the table of data alone.
 */
#include <unistd.h>

__attribute__((noplt)) unsigned fake_call(int (*)(unsigned));
__attribute__((noplt)) int usleep(useconds_t);

void leave_slowly(int status);

static int kernel(unsigned correlation)
{
    (void)correlation;
    return 0;
}

static int one(void)
{
    return 1;
}

static int (*resolved(void))(void)
{
    fake_call(kernel); /* the first one makes a context */
    usleep(500000);
    return one;
}

int indirect(void) __attribute__((ifunc("resolved")));
int (*indirect_address)(void) = indirect;

void leave_slowly(int status)
{
    _exit(status);
}
