// Sums by trees in shared memory, in two kernels and five grids in turn: many barriers, little parallelism at the end.
#include "workload.cuh"

constexpr int kThreads = 256;

__device__ float block_sum(float value) {
  __shared__ float partial[kThreads];
  partial[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half >>= 1) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  return partial[0];
}

__global__ void reduce_blocks(const float *x, int64_t n, float *sums) {
  float total = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads) total += x[i];
  total = block_sum(total);
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

__global__ void reduce_sums(const float *sums, int count, float *result) {
  float total = 0;
  for (int i = threadIdx.x; i < count; i += kThreads) total += sums[i];
  total = block_sum(total);
  if (threadIdx.x == 0) *result = total;
}

int main(int argc, char **argv) {
  const auto arguments = workload::parse(argc, argv, 1 << 24, 200);
  const workload::Buffer<float> x(workload::uniform_data(arguments.size, arguments.seed));
  const workload::Buffer<float> sums(1024), result(arguments.iterations);
  workload::Report report("reduction", arguments);
  for (int64_t i = 0; i < arguments.iterations; i++) {
    const int grid = 64 << (i % 5);
    reduce_blocks<<<grid, kThreads>>>(x.get(), arguments.size, sums.get());
    report.launched();
    reduce_sums<<<1, kThreads>>>(sums.get(), grid, result.get() + i);
    report.launched();
  }
  report.finish();
  return report.print(workload::sum(result.host()));
}
