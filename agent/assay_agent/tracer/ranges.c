/* NVTX injection: NVTX calls InitializeInjectionNvtx2 of NVTX_INJECTION64_PATH at its first use in a process, and
 * takes the functions that are set there. Push/pop ranges are kept in a stack a thread, so that a launch knows its
 * ranges without comparing times. Start/end ranges are not kept: they belong to no thread.
 */
#define _GNU_SOURCE
#include "ranges.h"

#include <ctype.h>
#include <nvtx3/nvToolsExt.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "forks.h"
#include "names.h"

#define DEEPEST 128
#define LONGEST_WIDE 1024u

struct entry {
    nvtxDomainHandle_t domain;
    uint32_t range;
};

static __thread struct entry stack[DEEPEST];
static __thread int depth; /* may exceed DEEPEST: deeper ranges are only counted */
static uint64_t unnamed;

uint32_t range_innermost(void)
{
    int top = depth < DEEPEST ? depth : DEEPEST;
    return top ? stack[top - 1].range : 0;
}

uint64_t ranges_unnamed(void)
{
    return __atomic_load_n(&unnamed, __ATOMIC_RELAXED);
}

/* Remove ", key = 123" anywhere: it would make every range of an operator different. */
static void remove_number(char *text, const char *key)
{
    char *found = strstr(text, key);
    if (!found) return;
    char *end = found + strlen(key);
    if (!isdigit((unsigned char)*end)) return;
    while (isdigit((unsigned char)*end)) end++;
    memmove(found, end, strlen(end) + 1);
}

/* PyTorch's emit_nvtx writes "NAME, seq = 5, op_id = 12, sizes = [[2, 3]], input_op_ids = [...]": the name and the
 * sizes are kept. */
static void clean(char *text)
{
    char *inputs = strstr(text, ", input_op_ids = ");
    if (inputs) *inputs = '\0';
    remove_number(text, ", seq = ");
    remove_number(text, ", op_id = ");
}

static int push(nvtxDomainHandle_t domain, const char *text)
{
    char kept[NAME_LONGEST_BYTES + 1];
    if (depth < DEEPEST) {
        uint32_t bytes = (uint32_t)strnlen(text, NAME_LONGEST_BYTES);
        memcpy(kept, text, bytes);
        kept[bytes] = '\0';
        clean(kept);
        uint32_t parent = range_innermost();
        uint32_t range = name_intern(NAME_RANGE, parent, kept);
        if (!range) {
            __atomic_add_fetch(&unnamed, 1, __ATOMIC_RELAXED);
            range = parent;
        }
        stack[depth] = (struct entry){domain, range};
    }
    return depth++;
}

/* Ranges of different domains need not nest: the innermost one of the domain ends. */
static int pop(nvtxDomainHandle_t domain)
{
    if (depth > DEEPEST) return --depth;
    for (int i = depth - 1; i >= 0; i--) {
        if (stack[i].domain != domain) continue;
        memmove(&stack[i], &stack[i + 1], (size_t)(depth - 1 - i) * sizeof *stack);
        return --depth;
    }
    return NVTX_NO_PUSH_POP_TRACKING;
}

static void narrowed(const wchar_t *wide, char *text, size_t bytes)
{
    size_t length = 0;
    for (; *wide && length + 1 < bytes; wide++) text[length++] = *wide < 128 ? (char)*wide : '?';
    text[length] = '\0';
}

static int push_attributes(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
    char text[LONGEST_WIDE];
    const char *given = "";
    if (attributes && attributes->messageType == NVTX_MESSAGE_TYPE_ASCII && attributes->message.ascii)
        given = attributes->message.ascii;
    else if (attributes && attributes->messageType == NVTX_MESSAGE_TYPE_REGISTERED && attributes->message.registered)
        given = (const char *)attributes->message.registered;
    else if (attributes && attributes->messageType == NVTX_MESSAGE_TYPE_UNICODE && attributes->message.unicode) {
        narrowed(attributes->message.unicode, text, sizeof text);
        given = text;
    }
    return push(domain, given);
}

static int NVTX_API push_ascii(const char *message)
{
    return push(NULL, message ? message : "");
}

static int NVTX_API push_wide(const wchar_t *message)
{
    char text[LONGEST_WIDE];
    narrowed(message ? message : L"", text, sizeof text);
    return push(NULL, text);
}

static int NVTX_API push_event(const nvtxEventAttributes_t *attributes)
{
    return push_attributes(NULL, attributes);
}

static int NVTX_API pop_event(void)
{
    return pop(NULL);
}

static int NVTX_API push_in_domain(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
    return push_attributes(domain, attributes);
}

static int NVTX_API pop_in_domain(nvtxDomainHandle_t domain)
{
    return pop(domain);
}

/* The handle of a registered text is a copy of it; both live as long as the process. */
static nvtxStringHandle_t NVTX_API register_ascii(nvtxDomainHandle_t domain, const char *text)
{
    (void)domain;
    return (nvtxStringHandle_t)strdup(text ? text : "");
}

static nvtxStringHandle_t NVTX_API register_wide(nvtxDomainHandle_t domain, const wchar_t *wide)
{
    char text[LONGEST_WIDE];
    narrowed(wide ? wide : L"", text, sizeof text);
    return register_ascii(domain, text);
}

/* A domain only has to differ from others and from the default, which is NULL. */
static nvtxDomainHandle_t NVTX_API create_domain(const char *name)
{
    return (nvtxDomainHandle_t)strdup(name ? name : "");
}

static nvtxDomainHandle_t NVTX_API create_domain_wide(const wchar_t *wide)
{
    char text[LONGEST_WIDE];
    narrowed(wide ? wide : L"", text, sizeof text);
    return create_domain(text);
}

static void set(NvtxFunctionTable table, unsigned int size, unsigned int id, NvtxFunctionPointer function)
{
    if (id < size && table[id]) *table[id] = function;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t export_table)
{
    const NvtxExportTableCallbacks *callbacks
        = (const NvtxExportTableCallbacks *)export_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned int size = 0;
    if (!callbacks || callbacks->struct_size < sizeof *callbacks) return 0;
    forks_watch();
    if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size)) {
        set(table, size, NVTX_CBID_CORE_RangePushA, (NvtxFunctionPointer)push_ascii);
        set(table, size, NVTX_CBID_CORE_RangePushW, (NvtxFunctionPointer)push_wide);
        set(table, size, NVTX_CBID_CORE_RangePushEx, (NvtxFunctionPointer)push_event);
        set(table, size, NVTX_CBID_CORE_RangePop, (NvtxFunctionPointer)pop_event);
    }
    if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) {
        set(table, size, NVTX_CBID_CORE2_DomainRangePushEx, (NvtxFunctionPointer)push_in_domain);
        set(table, size, NVTX_CBID_CORE2_DomainRangePop, (NvtxFunctionPointer)pop_in_domain);
        set(table, size, NVTX_CBID_CORE2_DomainRegisterStringA, (NvtxFunctionPointer)register_ascii);
        set(table, size, NVTX_CBID_CORE2_DomainRegisterStringW, (NvtxFunctionPointer)register_wide);
        set(table, size, NVTX_CBID_CORE2_DomainCreateA, (NvtxFunctionPointer)create_domain);
        set(table, size, NVTX_CBID_CORE2_DomainCreateW, (NvtxFunctionPointer)create_domain_wide);
    }
    return 1;
}
