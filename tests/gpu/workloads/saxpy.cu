// y = a x + y over four lengths in turn: bound by memory, few instructions a byte.
#include "workload.cuh"

__global__ void saxpy(int64_t n, float a, const float *x, float *y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

int main(int argc, char **argv) {
  const auto arguments = workload::parse(argc, argv, 1 << 24, 400);
  const workload::Buffer<float> x(workload::uniform_data(arguments.size, arguments.seed));
  const workload::Buffer<float> y(workload::uniform_data(arguments.size, arguments.seed + 1));
  workload::Report report("saxpy", arguments);
  for (int64_t i = 0; i < arguments.iterations; i++) {
    const int64_t n = (arguments.size >> (i % 4)) > 0 ? arguments.size >> (i % 4) : 1;
    saxpy<<<workload::blocks(n, 256), 256>>>(n, 0.001f, x.get(), y.get());
    report.launched();
  }
  report.finish();
  return report.print(workload::sum(y.host()));
}
