/* The ends of a process that run no exit handlers. */
#ifndef ASSAY_TRACER_EXITS_H
#define ASSAY_TRACER_EXITS_H

/* Call `last` before _exit, _Exit and quick_exit, as every library that is loaded now calls them. It is called again for
 * libraries that were loaded since; what is replaced already stays. */
void exits_watch(void (*last)(void));

#endif
