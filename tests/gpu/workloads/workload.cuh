// What the CUDA workloads share: arguments, seeded data, counted launches, and the one line that each prints.
//
//   NAME [--size N] [--iterations N] [--seed N]
//
// The same arguments give the same launches and the same checksum on a kind of GPU. The line is JSON, so that tests can
// compare what was issued with what was traced:
//   {"assay_workload": "saxpy", "size": .., "iterations": .., "seed": .., "launches": .., "sms": ..,
//    "issue_seconds": .., "gpu_seconds": .., "checksum": ..}
// issue_seconds is the time from the first launch to the end of the last, gpu_seconds the same between two events of the
// GPU's own clock.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cuda_runtime.h>

#define CHECK(call)                                                                                       \
  do {                                                                                                    \
    const cudaError_t error_ = (call);                                                                    \
    if (error_ != cudaSuccess) {                                                                          \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error_));                \
      std::exit(1);                                                                                       \
    }                                                                                                     \
  } while (0)

namespace workload {

struct Arguments {
  int64_t size;
  int64_t iterations;
  uint64_t seed = 1;
  bool autotune = false;
};

inline void usage(const char *program) {
  std::fprintf(stderr, "usage: %s [--size N] [--iterations N] [--seed N] [--autotune 0|1]\n", program);
  std::exit(2);
}

inline Arguments parse(int argc, char **argv, int64_t size, int64_t iterations) {
  Arguments found{size, iterations};
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) usage(argv[0]);
    char *end = nullptr;
    const long long value = std::strtoll(argv[i + 1], &end, 10);
    if (*end != '\0' || value < 0) usage(argv[0]);
    if (!std::strcmp(argv[i], "--size") && value > 0) found.size = value;
    else if (!std::strcmp(argv[i], "--iterations") && value > 0) found.iterations = value;
    else if (!std::strcmp(argv[i], "--seed")) found.seed = static_cast<uint64_t>(value);
    else if (!std::strcmp(argv[i], "--autotune")) found.autotune = value != 0;
    else usage(argv[0]);
  }
  return found;
}

// SplitMix64: a number for each index, the same everywhere.
__host__ __device__ inline uint64_t mixed(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

inline float uniform(uint64_t seed, uint64_t index) {
  return static_cast<float>(mixed(seed, index) >> 40) * 0x1p-24f;
}

template <typename T> class Buffer {
public:
  explicit Buffer(int64_t count) : count_(count) {
    CHECK(cudaMalloc(&data_, bytes()));
    CHECK(cudaMemset(data_, 0, bytes()));
  }
  explicit Buffer(const std::vector<T> &host) : Buffer(static_cast<int64_t>(host.size())) {
    CHECK(cudaMemcpy(data_, host.data(), bytes(), cudaMemcpyHostToDevice));
  }
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  ~Buffer() { cudaFree(data_); }

  T *get() const { return data_; }
  size_t bytes() const { return static_cast<size_t>(count_) * sizeof(T); }
  std::vector<T> host() const {
    std::vector<T> copied(static_cast<size_t>(count_));
    CHECK(cudaMemcpy(copied.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return copied;
  }

private:
  int64_t count_;
  T *data_ = nullptr;
};

inline std::vector<float> uniform_data(int64_t count, uint64_t seed) {
  std::vector<float> data(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; i++) data[static_cast<size_t>(i)] = uniform(seed, static_cast<uint64_t>(i));
  return data;
}

// Counts launches, times them, and prints the line.
class Report {
public:
  Report(const char *name, const Arguments &arguments) : name_(name), arguments_(arguments) {
    int device = 0;
    CHECK(cudaGetDevice(&device));
    CHECK(cudaDeviceGetAttribute(&sms_, cudaDevAttrMultiProcessorCount, device));
    CHECK(cudaEventCreate(&first_));
    CHECK(cudaEventCreate(&last_));
    CHECK(cudaDeviceSynchronize());
    begin_ = std::chrono::steady_clock::now();
    CHECK(cudaEventRecord(first_));
  }
  // After each launch; `count` where one call launches several (a graph's nodes).
  void launched(int64_t count = 1) {
    CHECK(cudaPeekAtLastError());
    launches_ += count;
  }
  int sms() const { return sms_; }
  // Waits for the GPU.
  void finish() {
    CHECK(cudaEventRecord(last_));
    CHECK(cudaDeviceSynchronize());
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    CHECK(cudaEventElapsedTime(&gpu_milliseconds_, first_, last_));
  }
  int print(double checksum) const {
    std::printf("{\"assay_workload\": \"%s\", \"size\": %lld, \"iterations\": %lld, \"seed\": %llu, \"launches\": %lld, "
                "\"sms\": %d, \"issue_seconds\": %.6f, \"gpu_seconds\": %.6f, \"checksum\": %.9g}\n",
                name_, static_cast<long long>(arguments_.size), static_cast<long long>(arguments_.iterations),
                static_cast<unsigned long long>(arguments_.seed), static_cast<long long>(launches_), sms_, seconds_,
                static_cast<double>(gpu_milliseconds_) / 1000.0, checksum);
    return std::isfinite(checksum) ? 0 : 1;
  }

private:
  const char *name_;
  Arguments arguments_;
  int sms_ = 0;
  int64_t launches_ = 0;
  float gpu_milliseconds_ = 0;
  double seconds_ = 0;
  cudaEvent_t first_ = nullptr, last_ = nullptr;
  std::chrono::steady_clock::time_point begin_;
};

inline int blocks(int64_t work, int threads) { return static_cast<int>((work + threads - 1) / threads); }

template <typename T> double sum(const std::vector<T> &values) {
  double total = 0;
  for (const T value : values) total += static_cast<double>(value);
  return total;
}

} // namespace workload
