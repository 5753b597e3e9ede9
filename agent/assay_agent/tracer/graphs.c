#include "graphs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Graphs, their nodes, and executable graphs, each by its handle. Handles are used again after their end, so a node
 * names its graph by a number of ours. Of an instantiation CUPTI tells each node as created, and then as cloned.
 */
struct entry {
    const void *key; /* NULL: free */
    uint64_t graph;  /* of a node: its graph's number; of a graph: its own */
    uint32_t kernels;
    uint32_t unknown; /* nodes with an unknown number of kernels */
    uint32_t nodes;
};

struct table {
    struct entry *entries;
    size_t capacity, used; /* the capacity is a power of two */
};

#define LARGEST_TABLE (1u << 21)

const CUpti_CallbackId graphs_watched[] = {
    CUPTI_CBID_RESOURCE_GRAPH_CREATED,          CUPTI_CBID_RESOURCE_GRAPH_CLONED,
    CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
    CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED,       CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING,
    CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED,      CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING,
};

const unsigned graphs_watched_count = sizeof graphs_watched / sizeof *graphs_watched;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct table graphs, nodes, executables;
static uint64_t last_graph;
static int overflowed; /* a handle did not fit: counting has stopped */

static size_t slot_of(const struct table *table, const void *key)
{
    uint64_t hash = (uint64_t)(uintptr_t)key * 0x9e3779b97f4a7c15ull;
    return (size_t)(hash >> 20) & (table->capacity - 1);
}

static struct entry *find(const struct table *table, const void *key)
{
    if (!table->capacity || !key) return NULL;
    size_t slot = slot_of(table, key);
    while (table->entries[slot].key && table->entries[slot].key != key) slot = (slot + 1) & (table->capacity - 1);
    return table->entries[slot].key ? &table->entries[slot] : NULL;
}

static int grow(struct table *table)
{
    struct table larger = {NULL, table->capacity ? 2 * table->capacity : 256, table->used};
    if (larger.capacity > LARGEST_TABLE) return 0;
    larger.entries = calloc(larger.capacity, sizeof *larger.entries);
    if (!larger.entries) return 0;
    for (size_t i = 0; i < table->capacity; i++) {
        if (!table->entries[i].key) continue;
        size_t slot = slot_of(&larger, table->entries[i].key);
        while (larger.entries[slot].key) slot = (slot + 1) & (larger.capacity - 1);
        larger.entries[slot] = table->entries[i];
    }
    free(table->entries);
    *table = larger;
    return 1;
}

/* The entry of a key, created if missing; NULL if there is no room. */
static struct entry *entry_of(struct table *table, const void *key)
{
    struct entry *found = find(table, key);
    if (found || !key) return found;
    if (4 * (table->used + 1) > 3 * table->capacity && !grow(table)) {
        overflowed = 1;
        return NULL;
    }
    size_t slot = slot_of(table, key);
    while (table->entries[slot].key) slot = (slot + 1) & (table->capacity - 1);
    table->entries[slot] = (struct entry){.key = key};
    table->used++;
    return &table->entries[slot];
}

/* Later entries move up, so that no search ends too early. */
static void remove_entry(struct table *table, struct entry *entry)
{
    size_t hole = (size_t)(entry - table->entries), mask = table->capacity - 1;
    for (size_t at = (hole + 1) & mask; table->entries[at].key; at = (at + 1) & mask) {
        size_t wanted = slot_of(table, table->entries[at].key);
        if (((at - wanted) & mask) < ((at - hole) & mask)) continue;
        table->entries[hole] = table->entries[at];
        hole = at;
    }
    table->entries[hole] = (struct entry){0};
    table->used--;
}

static struct entry *graph_of(CUgraph handle)
{
    struct entry *graph = entry_of(&graphs, handle);
    if (graph && !graph->graph) graph->graph = ++last_graph;
    return graph;
}

/* Add a node's kernels to a graph, or subtract them. */
static void weigh(struct entry *graph, const struct entry *node, int sign)
{
    graph->kernels += (uint32_t)sign * node->kernels;
    graph->unknown += (uint32_t)sign * node->unknown;
    graph->nodes += (uint32_t)sign;
}

static void set_weight(struct entry *node, CUgraphNodeType type, CUgraphNode original)
{
    const struct entry *known = find(&nodes, original);
    node->kernels = type == CU_GRAPH_NODE_TYPE_KERNEL;
    node->unknown = type == CU_GRAPH_NODE_TYPE_GRAPH || type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
    if (known) {
        node->kernels = known->kernels;
        node->unknown = known->unknown;
    }
}

static void take_node(const CUpti_GraphData *data)
{
    struct entry *graph = graph_of(data->graph), *node = entry_of(&nodes, data->node);
    if (!graph || !node) return;
    if (node->graph == graph->graph) weigh(graph, node, -1);
    node->graph = graph->graph;
    set_weight(node, data->nodeType, data->originalNode);
    weigh(graph, node, 1);
}

static void drop_node(const CUpti_GraphData *data)
{
    struct entry *graph = find(&graphs, data->graph), *node = find(&nodes, data->node);
    if (!node) return;
    if (graph && node->graph == graph->graph) weigh(graph, node, -1);
    remove_entry(&nodes, node);
}

static void drop(struct table *table, const void *key)
{
    struct entry *entry = find(table, key);
    if (entry) remove_entry(table, entry);
}

static void take_executable(const CUpti_GraphData *data)
{
    const struct entry *graph = find(&graphs, data->graph);
    struct entry *executable = entry_of(&executables, data->graphExec);
    if (!executable) return;
    executable->kernels = graph && graph->nodes && !graph->unknown ? graph->kernels : GRAPHS_UNCOUNTED;
}

static void take(CUpti_CallbackId id, const CUpti_GraphData *data)
{
    switch (id) {
    case CUPTI_CBID_RESOURCE_GRAPH_CREATED: drop(&graphs, data->graph); /* fall through */
    case CUPTI_CBID_RESOURCE_GRAPH_CLONED: graph_of(data->graph); break;
    case CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING: drop(&graphs, data->graph); break;
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED:
    case CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED: take_node(data); break;
    case CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING: drop_node(data); break;
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED: take_executable(data); break;
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING: drop(&executables, data->graphExec); break;
    default: break;
    }
}

void graphs_take(CUpti_CallbackId id, const CUpti_GraphData *data)
{
    if (!data) return;
    pthread_mutex_lock(&lock);
    take(id, data);
    pthread_mutex_unlock(&lock);
}

void graphs_child(CUgraphNode handle, CUgraph child)
{
    pthread_mutex_lock(&lock);
    const struct entry *given = find(&graphs, child);
    struct entry *node = find(&nodes, handle);
    if (given && node && given->nodes && !given->unknown) {
        /* The node's graph has counted it as unknown so far. */
        for (size_t i = 0; i < graphs.capacity; i++) {
            struct entry *graph = &graphs.entries[i];
            if (!graph->key || graph->graph != node->graph) continue;
            weigh(graph, node, -1);
            node->kernels = given->kernels;
            node->unknown = 0;
            weigh(graph, node, 1);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

void graphs_switched(CUgraphExec handle)
{
    pthread_mutex_lock(&lock);
    struct entry *executable = find(&executables, handle);
    if (executable) executable->kernels = GRAPHS_UNCOUNTED;
    pthread_mutex_unlock(&lock);
}

uint32_t graphs_kernels(CUgraphExec handle)
{
    pthread_mutex_lock(&lock);
    const struct entry *executable = find(&executables, handle);
    uint32_t kernels = executable && !overflowed ? executable->kernels : GRAPHS_UNCOUNTED;
    pthread_mutex_unlock(&lock);
    return kernels;
}
