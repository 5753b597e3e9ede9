/* Texts that are sent once: kernel names, and NVTX ranges below their enclosing range. Thread-safe. */
#ifndef ASSAY_TRACER_NAMES_H
#define ASSAY_TRACER_NAMES_H

#include <stdint.h>

#define NAME_KERNEL 0u
#define NAME_RANGE 1u
#define NAME_LONGEST_BYTES 8192u

struct name {
    uint32_t parent, kind, bytes, next;
    char *text;
};

/* The id of a text, from 1; 0 if there is no room for it. Longer texts are cut. */
uint32_t name_intern(uint32_t kind, uint32_t parent, const char *text);

/* The name of an id: valid for ever, as is its text. */
const struct name *name_of(uint32_t id);

/* How many there are: ids reach from 1 to this. */
uint32_t name_count(void);

/* Keep all other threads out, as a fork needs. */
void names_lock(void);
void names_unlock(void);

#endif
