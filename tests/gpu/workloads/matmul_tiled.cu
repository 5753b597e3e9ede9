// C = A B in float with tiles in shared memory, of 16 and 32, for three sizes in turn: bound by computation.
#include "workload.cuh"

template <int Tile> __global__ void matmul_tiled(const float *a, const float *b, float *c, int n) {
  __shared__ float left[Tile][Tile], right[Tile][Tile];
  const int row = blockIdx.y * Tile + threadIdx.y, column = blockIdx.x * Tile + threadIdx.x;
  float total = 0;
  for (int k = 0; k < n; k += Tile) {
    left[threadIdx.y][threadIdx.x] = a[static_cast<int64_t>(row) * n + k + threadIdx.x];
    right[threadIdx.y][threadIdx.x] = b[static_cast<int64_t>(k + threadIdx.y) * n + column];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < Tile; i++) total += left[threadIdx.y][i] * right[i][threadIdx.x];
    __syncthreads();
  }
  c[static_cast<int64_t>(row) * n + column] = total;
}

int main(int argc, char **argv) {
  auto arguments = workload::parse(argc, argv, 2048, 120);
  arguments.size = (arguments.size + 127) / 128 * 128;
  const int64_t elements = arguments.size * arguments.size;
  const workload::Buffer<float> a(workload::uniform_data(elements, arguments.seed));
  const workload::Buffer<float> b(workload::uniform_data(elements, arguments.seed + 1));
  const workload::Buffer<float> c(elements);
  workload::Report report("matmul_tiled", arguments);
  for (int64_t i = 0; i < arguments.iterations; i++) {
    const int n = static_cast<int>(arguments.size >> (i % 3)); // a multiple of 32
    if (i % 2) matmul_tiled<16><<<dim3(n / 16, n / 16), dim3(16, 16)>>>(a.get(), b.get(), c.get(), n);
    else matmul_tiled<32><<<dim3(n / 32, n / 32), dim3(32, 32)>>>(a.get(), b.get(), c.get(), n);
    report.launched();
  }
  report.finish();
  return report.print(workload::sum(c.host()));
}
