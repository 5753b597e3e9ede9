// Small kernels on four streams that overlap, and one large one after each round that waits for them.
#include "workload.cuh"

constexpr int kStreams = 4;

__global__ void work(float *x, int n, int rounds) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float value = x[i];
  for (int round = 0; round < rounds; round++) value = value * 0.999f + 0.0005f;
  x[i] = value;
}

__global__ void gather(float *x, int n, int parts) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float total = 0;
  for (int part = 0; part < parts; part++) total += x[static_cast<int64_t>(part) * n + i];
  x[i] = total / parts;
}

int main(int argc, char **argv) {
  const auto arguments = workload::parse(argc, argv, 1 << 16, 100);
  const int n = static_cast<int>(arguments.size);
  const workload::Buffer<float> x(workload::uniform_data(arguments.size * kStreams, arguments.seed));
  cudaStream_t streams[kStreams];
  cudaEvent_t done[kStreams], gathered;
  for (int i = 0; i < kStreams; i++) {
    CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&done[i], cudaEventDisableTiming));
  }
  CHECK(cudaEventCreateWithFlags(&gathered, cudaEventDisableTiming));
  workload::Report report("multi_stream", arguments);
  for (int64_t i = 0; i < arguments.iterations; i++) {
    for (int s = 0; s < kStreams; s++) {
      if (i) CHECK(cudaStreamWaitEvent(streams[s], gathered, 0));
      work<<<workload::blocks(n, 128), 128, 0, streams[s]>>>(x.get() + static_cast<int64_t>(s) * n, n, 200 * (s + 1));
      report.launched();
      CHECK(cudaEventRecord(done[s], streams[s]));
    }
    for (int s = 1; s < kStreams; s++) CHECK(cudaStreamWaitEvent(streams[0], done[s], 0));
    gather<<<workload::blocks(n, 256), 256, 0, streams[0]>>>(x.get(), n, kStreams);
    report.launched();
    CHECK(cudaEventRecord(gathered, streams[0]));
  }
  CHECK(cudaDeviceSynchronize());
  report.finish();
  return report.print(workload::sum(x.host()));
}
