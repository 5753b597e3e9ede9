/* The ends of a process that run no exit handlers. */
#ifndef ASSAY_TRACER_EXITS_H
#define ASSAY_TRACER_EXITS_H

/* Call `last` before _exit, _Exit and quick_exit, as every library that is loaded now calls them. */
void exits_begin(void (*last)(void));

/* Do that for libraries loaded since; called by one thread only, which must hold no lock. */
void exits_watch(void);

/* Keep all other threads out, as a fork needs. */
void exits_lock(void);
void exits_unlock(void);

#endif
