/* What other parts ask of the tracer itself. */
#ifndef ASSAY_TRACER_TRACER_H
#define ASSAY_TRACER_TRACER_H

/* Send everything that is left, once, before the process ends; does nothing if it is not traced. */
void tracer_finish(void);

/* Keep forked children from inheriting a lock that is held; before the first name. */
void tracer_watch_forks(void);

#endif
