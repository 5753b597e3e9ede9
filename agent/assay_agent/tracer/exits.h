/* The ends of a process that run no exit handlers. */
#ifndef ASSAY_TRACER_EXITS_H
#define ASSAY_TRACER_EXITS_H

/* Call `last` before _exit, _Exit and quick_exit, as every library that is loaded now calls them. */
void exits_begin(void (*last)(void));

/* The same for libraries that were loaded since; by one thread alone, which holds no lock. */
void exits_watch(void);

/* Keep all other threads out, as a fork needs. */
void exits_lock(void);
void exits_unlock(void);

#endif
