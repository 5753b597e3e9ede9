/* Forks of the traced process. */
#ifndef ASSAY_TRACER_FORKS_H
#define ASSAY_TRACER_FORKS_H

/* Keep forked children from inheriting a lock that is held; before the first name. */
void forks_watch(void);

#endif
