// Breadth-first search over a random graph with a few hubs, level by level: frontiers grow and shrink, threads diverge.
// Which thread finds a vertex is a race; its level and the size of each frontier are not, so launches are the same.
#include <utility>

#include "workload.cuh"

__global__ void expand(const int *offsets, const int *targets, const int *frontier, int count, int *levels, int *next, int *found,
                       int level) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int vertex = frontier[i];
  for (int edge = offsets[vertex]; edge < offsets[vertex + 1]; edge++) {
    const int target = targets[edge];
    if (atomicCAS(&levels[target], -1, level) == -1) next[atomicAdd(found, 1)] = target;
  }
}

int main(int argc, char **argv) {
  const auto arguments = workload::parse(argc, argv, 1 << 20, 12);
  const int vertices = static_cast<int>(arguments.size);
  std::vector<int> offsets{0}, targets;
  for (int vertex = 0; vertex < vertices; vertex++) {
    const uint64_t draw = workload::mixed(arguments.seed, vertex);
    const int degree = 1 + static_cast<int>(draw % 100 < 2 ? draw / 100 % 400 : draw / 100 % 6);
    for (int edge = 0; edge < degree; edge++)
      targets.push_back(static_cast<int>(workload::mixed(arguments.seed + 1, targets.size()) % vertices));
    offsets.push_back(static_cast<int>(targets.size()));
  }
  const workload::Buffer<int> rows(offsets), columns(targets), found(1), levels(vertices), one(vertices), other(vertices);
  workload::Report report("graph_walk", arguments);
  double reached = 0;
  for (int64_t walk = 0; walk < arguments.iterations; walk++) {
    const int source = static_cast<int>(workload::mixed(arguments.seed + 2, walk) % vertices), zero = 0;
    int *frontier = one.get(), *next = other.get(), count = 1;
    CHECK(cudaMemset(levels.get(), 0xff, levels.bytes()));
    CHECK(cudaMemcpy(frontier, &source, sizeof source, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(levels.get() + source, &zero, sizeof zero, cudaMemcpyHostToDevice));
    for (int level = 1; count > 0; level++) {
      CHECK(cudaMemset(found.get(), 0, found.bytes()));
      expand<<<workload::blocks(count, 128), 128>>>(rows.get(), columns.get(), frontier, count, levels.get(), next, found.get(),
                                                    level);
      report.launched();
      CHECK(cudaMemcpy(&count, found.get(), sizeof count, cudaMemcpyDeviceToHost));
      reached += static_cast<double>(count) * level;
      std::swap(frontier, next);
    }
  }
  report.finish();
  return report.print(reached);
}
