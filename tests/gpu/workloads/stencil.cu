// Heat on a square, five points, to and fro between two fields: neighbours read what neighbours read.
#include <utility>

#include "workload.cuh"

__global__ void stencil(const float *in, float *out, int n) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= n || y >= n) return;
  const int64_t here = static_cast<int64_t>(y) * n + x;
  if (x == 0 || y == 0 || x == n - 1 || y == n - 1) {
    out[here] = in[here];
    return;
  }
  out[here] = 0.2f * (in[here] + in[here - 1] + in[here + 1] + in[here - n] + in[here + n]);
}

int main(int argc, char **argv) {
  const auto arguments = workload::parse(argc, argv, 2048, 400);
  const int n = static_cast<int>(arguments.size);
  const workload::Buffer<float> a(workload::uniform_data(arguments.size * arguments.size, arguments.seed));
  const workload::Buffer<float> b(arguments.size * arguments.size);
  float *in = a.get(), *out = b.get();
  workload::Report report("stencil", arguments);
  for (int64_t i = 0; i < arguments.iterations; i++) {
    stencil<<<dim3(workload::blocks(n, 32), workload::blocks(n, 8)), dim3(32, 8)>>>(in, out, n);
    report.launched();
    std::swap(in, out);
  }
  report.finish();
  return report.print(workload::sum(arguments.iterations % 2 ? b.host() : a.host()));
}
