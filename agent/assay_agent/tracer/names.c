#include "names.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Limits workloads that number their ranges: 65,536 names and 32 MiB of text. */
#define MOST_NAMES 65536u
#define MOST_TEXT_BYTES (32u << 20)
#define BUCKETS 65536u

static struct name names[MOST_NAMES + 1];
static uint32_t buckets[BUCKETS];
static uint32_t count;
static uint64_t text_bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint32_t hash_of(uint32_t kind, uint32_t parent, const char *text, uint32_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325ull ^ kind ^ ((uint64_t)parent << 8);
    for (uint32_t i = 0; i < bytes; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3ull;
    return (uint32_t)(hash ^ (hash >> 32)) % BUCKETS;
}

static uint32_t added(uint32_t bucket, uint32_t kind, uint32_t parent, const char *text, uint32_t bytes)
{
    if (count >= MOST_NAMES || text_bytes + bytes > MOST_TEXT_BYTES) return 0;
    char *copy = malloc(bytes + 1u);
    if (!copy) return 0;
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    text_bytes += bytes;
    uint32_t id = count + 1;
    names[id] = (struct name){parent, kind, bytes, buckets[bucket], copy};
    buckets[bucket] = id;
    __atomic_store_n(&count, id, __ATOMIC_RELEASE);
    return id;
}

uint32_t name_intern(uint32_t kind, uint32_t parent, const char *text)
{
    uint32_t bytes = (uint32_t)strnlen(text, NAME_LONGEST_BYTES);
    uint32_t bucket = hash_of(kind, parent, text, bytes);
    pthread_mutex_lock(&lock);
    uint32_t id = buckets[bucket];
    while (id && !(names[id].kind == kind && names[id].parent == parent && names[id].bytes == bytes
                   && memcmp(names[id].text, text, bytes) == 0))
        id = names[id].next;
    if (!id) id = added(bucket, kind, parent, text, bytes);
    pthread_mutex_unlock(&lock);
    return id;
}

void names_lock(void)
{
    pthread_mutex_lock(&lock);
}

void names_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

const struct name *name_of(uint32_t id)
{
    return &names[id];
}

uint32_t name_count(void)
{
    return __atomic_load_n(&count, __ATOMIC_ACQUIRE);
}
