// Nothing but launches: --size is how long a kernel computes (1: about 3 microseconds with its launch), --iterations how
// many there are. For what a tracer costs, and to prove that it loses none of a million.
#include "workload.cuh"

__global__ void short_kernel(float *x, int rounds) {
  float value = x[threadIdx.x];
  for (int round = 0; round < rounds; round++) value = value * 0.9999f + 0.0001f;
  x[threadIdx.x] = value;
}

int main(int argc, char **argv) {
  const auto arguments = workload::parse(argc, argv, 1, 1000000);
  const workload::Buffer<float> x(workload::uniform_data(64, arguments.seed));
  workload::Report report("many_launches", arguments);
  for (int64_t i = 0; i < arguments.iterations; i++) {
    short_kernel<<<1, 64>>>(x.get(), static_cast<int>(arguments.size));
    report.launched();
  }
  report.finish();
  return report.print(workload::sum(x.host()));
}
