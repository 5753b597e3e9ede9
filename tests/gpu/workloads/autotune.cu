// A matrix product that first tries three tile sizes and keeps the fastest, as libraries do. With --autotune 1 the choice
// is made by the clock, so two runs may differ; with --autotune 0, the default, it is fixed.
#include "workload.cuh"

template <int Tile> __global__ void product(const float *a, const float *b, float *c, int n) {
  __shared__ float left[Tile][Tile], right[Tile][Tile];
  const int row = blockIdx.y * Tile + threadIdx.y, column = blockIdx.x * Tile + threadIdx.x;
  float total = 0;
  for (int k = 0; k < n; k += Tile) {
    left[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
    right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
    __syncthreads();
    for (int i = 0; i < Tile; i++) total += left[threadIdx.y][i] * right[i][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = total;
}

static void run(int choice, const float *a, const float *b, float *c, int n) {
  if (choice == 0) product<8><<<dim3(n / 8, n / 8), dim3(8, 8)>>>(a, b, c, n);
  else if (choice == 1) product<16><<<dim3(n / 16, n / 16), dim3(16, 16)>>>(a, b, c, n);
  else product<32><<<dim3(n / 32, n / 32), dim3(32, 32)>>>(a, b, c, n);
}

int main(int argc, char **argv) {
  auto arguments = workload::parse(argc, argv, 512, 100);
  arguments.size = (arguments.size + 31) / 32 * 32;
  const int n = static_cast<int>(arguments.size);
  const int64_t elements = arguments.size * arguments.size;
  const workload::Buffer<float> a(workload::uniform_data(elements, arguments.seed));
  const workload::Buffer<float> b(workload::uniform_data(elements, arguments.seed + 1)), c(elements);
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  workload::Report report("autotune", arguments);
  int best = 1;
  float least = 1e30f;
  for (int choice = 0; choice < 3; choice++) {
    float milliseconds = 0;
    CHECK(cudaEventRecord(begin));
    run(choice, a.get(), b.get(), c.get(), n);
    report.launched();
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    if (arguments.autotune && milliseconds < least) {
      least = milliseconds;
      best = choice;
    }
  }
  for (int64_t i = 0; i < arguments.iterations; i++) {
    run(best, a.get(), b.get(), c.get(), n);
    report.launched();
  }
  report.finish();
  return report.print(workload::sum(c.host()));
}
