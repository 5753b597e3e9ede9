/* How many kernels a launch of an executable graph has, from CUPTI's callbacks about graphs and their nodes. */
#ifndef ASSAY_TRACER_GRAPHS_H
#define ASSAY_TRACER_GRAPHS_H

#include <cupti.h>
#include <stdint.h>

/* The callbacks of CUPTI's resource domain that are wanted. */
extern const CUpti_CallbackId graphs_watched[];
extern const unsigned graphs_watched_count;

/* Handle one of these callbacks. */
void graphs_take(CUpti_CallbackId id, const CUpti_GraphData *data);

/* A graph became a node of another one, which copies it. */
void graphs_child(CUgraphNode node, CUgraph child);

/* A node of an executable graph was switched off or on: its kernels are not counted from now on. */
void graphs_switched(CUgraphExec executable);

#define GRAPHS_UNCOUNTED UINT32_MAX

/* The kernels of one launch; GRAPHS_UNCOUNTED if a node decides on the GPU, or a node is unknown. */
uint32_t graphs_kernels(CUgraphExec executable);

#endif
