// Three kernels that hand their results on: each reads what the one before wrote, from L2 where it fits.
#include "workload.cuh"

constexpr int kThreads = 256;

__global__ void scale(const float *in, float *out, int64_t n, float factor) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) out[i] = in[i] * factor;
}

__global__ void combine(const float *first, const float *second, float *out, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) out[i] = 0.5f * (first[i] + second[i]);
}

__global__ void smooth(const float *in, float *out, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) out[i] = (in[i > 0 ? i - 1 : 0] + in[i] + in[i + 1 < n ? i + 1 : n - 1]) / 3.0f;
}

int main(int argc, char **argv) {
  const auto arguments = workload::parse(argc, argv, 1 << 20, 200);
  const int64_t n = arguments.size;
  const workload::Buffer<float> a(workload::uniform_data(n, arguments.seed)), b(n), c(n);
  const int grid = workload::blocks(n, kThreads);
  workload::Report report("chain", arguments);
  for (int64_t i = 0; i < arguments.iterations; i++) {
    scale<<<grid, kThreads>>>(a.get(), b.get(), n, 0.75f);
    report.launched();
    combine<<<grid, kThreads>>>(a.get(), b.get(), c.get(), n);
    report.launched();
    smooth<<<grid, kThreads>>>(c.get(), a.get(), n);
    report.launched();
  }
  report.finish();
  return report.print(workload::sum(a.host()));
}
