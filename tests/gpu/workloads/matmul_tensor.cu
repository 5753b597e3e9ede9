// C = A B of half precision into float on tensor cores (wmma), a warp a tile of 16 x 16, two sizes in turn.
#include <cuda_fp16.h>
#include <mma.h>

#include "workload.cuh"

constexpr int kTile = 16, kWarps = 4;

__global__ void matmul_tensor(const __half *a, const __half *b, float *c, int n) {
  using namespace nvcuda;
  const int row = blockIdx.y * kTile, column = (blockIdx.x * kWarps + threadIdx.x / 32) * kTile;
  if (column >= n) return;
  wmma::fragment<wmma::accumulator, kTile, kTile, kTile, float> total;
  wmma::fill_fragment(total, 0.0f);
  for (int k = 0; k < n; k += kTile) {
    wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, __half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, __half, wmma::row_major> right;
    wmma::load_matrix_sync(left, a + static_cast<int64_t>(row) * n + k, n);
    wmma::load_matrix_sync(right, b + static_cast<int64_t>(k) * n + column, n);
    wmma::mma_sync(total, left, right, total);
  }
  wmma::store_matrix_sync(c + static_cast<int64_t>(row) * n + column, total, n, wmma::mem_row_major);
}

int main(int argc, char **argv) {
  auto arguments = workload::parse(argc, argv, 2048, 120);
  arguments.size = (arguments.size + 127) / 128 * 128;
  const int64_t elements = arguments.size * arguments.size;
  std::vector<__half> left(static_cast<size_t>(elements)), right(static_cast<size_t>(elements));
  for (int64_t i = 0; i < elements; i++) {
    left[i] = __float2half(workload::uniform(arguments.seed, i));
    right[i] = __float2half(workload::uniform(arguments.seed + 1, i));
  }
  const workload::Buffer<__half> a(left), b(right);
  const workload::Buffer<float> c(elements);
  workload::Report report("matmul_tensor", arguments);
  for (int64_t i = 0; i < arguments.iterations; i++) {
    const int n = static_cast<int>(arguments.size >> (i % 2)); // a multiple of 64
    matmul_tensor<<<dim3(workload::blocks(n, kTile * kWarps), n / kTile), kWarps * 32>>>(a.get(), b.get(), c.get(), n);
    report.launched();
  }
  report.finish();
  return report.print(workload::sum(c.host()));
}
