/* Workers of Python's multiprocessing end with _exit, which runs no exit handlers. Libraries call it by a pointer in a
 * table of their own (the global offset table), which the dynamic linker has filled: there it is replaced.
 * This does not catch direct system calls, signals, and programs without dynamic linking.
 */
#define _GNU_SOURCE
#include "exits.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#define IS_SLOT(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT)
#elif defined(__aarch64__)
#define IS_SLOT(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT)
#else
#define IS_SLOT(type) 0
#endif

static void (*before)(void);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long long libraries_seen;

/* The libraries with something to replace, found in one pass over all of them. */
#define MOST_FOUND 128u
static struct {
    ElfW(Addr) base;
    void *held;
    char name[1024];
} found[MOST_FOUND];
static unsigned found_count;

/* Replaces _exit. Our own library's _exit is never replaced, so this ends. */
static void ending(int status)
{
    before();
    _exit(status);
}

struct object {
    ElfW(Addr) base, read_only_begin, read_only_end;
    const ElfW(Sym) *symbols;
    const char *names;
    const ElfW(Rela) *tables[2];
    size_t bytes[2];
};

/* The dynamic linker has added the base to these addresses, but for a few objects (the kernel's own). */
static const void *address(const struct object *object, ElfW(Addr) value)
{
    return (const void *)(value < object->base ? object->base + value : value);
}

static void read_dynamic(struct object *object, const ElfW(Dyn) *dynamic)
{
    int with_addends = 0;
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        switch (dynamic->d_tag) {
        case DT_SYMTAB: object->symbols = address(object, dynamic->d_un.d_ptr); break;
        case DT_STRTAB: object->names = address(object, dynamic->d_un.d_ptr); break;
        case DT_JMPREL: object->tables[0] = address(object, dynamic->d_un.d_ptr); break;
        case DT_PLTRELSZ: object->bytes[0] = dynamic->d_un.d_val; break;
        case DT_PLTREL: with_addends = dynamic->d_un.d_val == DT_RELA; break;
        case DT_RELA: object->tables[1] = address(object, dynamic->d_un.d_ptr); break;
        case DT_RELASZ: object->bytes[1] = dynamic->d_un.d_val; break;
        default: break;
        }
    }
    if (!with_addends) object->bytes[0] = 0;
}

static struct object described(const struct dl_phdr_info *information)
{
    struct object object = {.base = information->dlpi_addr};
    const ElfW(Addr) page = (ElfW(Addr))sysconf(_SC_PAGESIZE);
    for (int i = 0; i < information->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &information->dlpi_phdr[i];
        if (header->p_type == PT_GNU_RELRO) {
            object.read_only_begin = (object.base + header->p_vaddr) & ~(page - 1);
            object.read_only_end = (object.base + header->p_vaddr + header->p_memsz) & ~(page - 1);
        }
        if (header->p_type == PT_DYNAMIC)
            read_dynamic(&object, (const ElfW(Dyn) *)(object.base + header->p_vaddr));
    }
    return object;
}

static void replace(const struct object *object, ElfW(Addr) place)
{
    uintptr_t *slot = (uintptr_t *)place;
    if (*slot == (uintptr_t)ending) return;
    ElfW(Addr) page = (ElfW(Addr))sysconf(_SC_PAGESIZE), first = place & ~(page - 1);
    int read_only = first >= object->read_only_begin && first < object->read_only_end;
    if (read_only && mprotect((void *)first, page, PROT_READ | PROT_WRITE) != 0) return;
    __atomic_store_n(slot, (uintptr_t)ending, __ATOMIC_RELEASE);
    if (read_only) mprotect((void *)first, page, PROT_READ);
}

static int is_exit(const char *name)
{
    return strcmp(name, "_exit") == 0 || strcmp(name, "_Exit") == 0;
}

static int is_ours(const struct dl_phdr_info *information)
{
    ElfW(Addr) here = (ElfW(Addr))ending;
    for (int i = 0; i < information->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &information->dlpi_phdr[i];
        ElfW(Addr) begin = information->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD && here >= begin && here < begin + header->p_memsz) return 1;
    }
    return 0;
}

/* How many slots of a library are not replaced; `replacing` replaces them. */
static unsigned slots_of(const struct dl_phdr_info *information, int replacing)
{
    unsigned left = 0;
    struct object object = described(information);
    for (int table = 0; object.symbols && object.names && table < 2; table++) {
        for (size_t i = 0; object.tables[table] && i < object.bytes[table] / sizeof(ElfW(Rela)); i++) {
            const ElfW(Rela) *entry = &object.tables[table][i];
            if (!IS_SLOT(ELF64_R_TYPE(entry->r_info))) continue;
            if (!is_exit(object.names + object.symbols[ELF64_R_SYM(entry->r_info)].st_name)) continue;
            left += *(uintptr_t *)(object.base + entry->r_offset) != (uintptr_t)ending;
            if (replacing) replace(&object, object.base + entry->r_offset);
        }
    }
    return left;
}

static int find(struct dl_phdr_info *information, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    const char *name = information->dlpi_name ? information->dlpi_name : "";
    if (found_count == MOST_FOUND || strstr(name, "linux-vdso") || is_ours(information)) return 0;
    if (strlen(name) >= sizeof found[0].name || !slots_of(information, 0)) return 0;
    found[found_count].base = information->dlpi_addr;
    strcpy(found[found_count++].name, name);
    return 0;
}

static int replace_found(struct dl_phdr_info *information, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    const char *name = information->dlpi_name ? information->dlpi_name : "";
    for (unsigned i = 0; i < found_count; i++)
        if (found[i].held && found[i].base == information->dlpi_addr && strcmp(found[i].name, name) == 0)
            slots_of(information, 1);
    return 0;
}

static int count(struct dl_phdr_info *information, size_t size, void *counted)
{
    (void)size;
    *(unsigned long long *)counted = information->dlpi_adds;
    return 1;
}

/* No fork or other thread of ours may come between: the linker's lock would stay held in the child. */
static void iterate(int (*visit)(struct dl_phdr_info *, size_t, void *), void *data)
{
    pthread_mutex_lock(&lock);
    dl_iterate_phdr(visit, data);
    pthread_mutex_unlock(&lock);
}

void exits_begin(void (*last)(void))
{
    before = last;
    at_quick_exit(last);
    exits_watch();
}

void exits_watch(void)
{
    unsigned long long loaded = 0;
    iterate(count, &loaded);
    if (loaded == libraries_seen) return;
    libraries_seen = loaded;
    found_count = 0;
    iterate(find, NULL);
    /* Another thread may be loading a library: half linked, it is told already. To open it again waits for that thread,
     * and holds it. No lock of ours is held, as its constructors may fork. */
    for (unsigned i = 0; i < found_count; i++)
        found[i].held = dlopen(*found[i].name ? found[i].name : NULL, RTLD_LAZY | RTLD_NOLOAD);
    iterate(replace_found, NULL);
    for (unsigned i = 0; i < found_count; i++)
        if (found[i].held) dlclose(found[i].held);
}

void exits_lock(void)
{
    pthread_mutex_lock(&lock);
}

void exits_unlock(void)
{
    pthread_mutex_unlock(&lock);
}
