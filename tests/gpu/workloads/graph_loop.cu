// A CUDA graph of eight kernel nodes, captured once and launched again and again: launches without a call each.
#include "workload.cuh"

constexpr int kNodes = 8;

__global__ void step(float *x, int64_t n, float factor) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] * factor + 0.001f;
}

__global__ void turn(float *x, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) x[i] = __sinf(x[i]);
}

int main(int argc, char **argv) {
  const auto arguments = workload::parse(argc, argv, 1 << 20, 100);
  const int64_t n = arguments.size;
  const workload::Buffer<float> x(workload::uniform_data(n, arguments.seed));
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int node = 0; node < kNodes; node++) {
    const int64_t part = n >> (node % 3);
    if (node % 4 == 3) turn<<<workload::blocks(part, 256), 256, 0, stream>>>(x.get(), part);
    else step<<<workload::blocks(part, 128), 128, 0, stream>>>(x.get(), part, 0.99f);
  }
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiateWithFlags(&executable, graph, 0));
  workload::Report report("graph_loop", arguments);
  for (int64_t i = 0; i < arguments.iterations; i++) {
    CHECK(cudaGraphLaunch(executable, stream));
    report.launched(kNodes);
  }
  CHECK(cudaStreamSynchronize(stream));
  report.finish();
  return report.print(workload::sum(x.host()));
}
