// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target where the compiler brings no libFuzzer: random mutations of the seeds, without
// coverage. Owns the main function; the target supplies LLVMFuzzerTestOneInput, and may supply
// LLVMFuzzerCustomMutator. Use: PROGRAM SECONDS [FILE-OR-FOLDER...]. The input of a crash stands in
// fuzz-crash.bin in the current folder.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" {
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);
__attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size,
                                                     unsigned int seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
}

namespace {

using Bytes = std::vector<uint8_t>;
constexpr size_t kMaxBytes = size_t{1} << 20;

std::mt19937_64 random_bits{1};
Bytes current;  // what the target is reading, for the signal handler

size_t below(size_t bound) { return bound ? random_bits() % bound : 0; }

void save_and_die(int signal_number) {
  const int fd = open("fuzz-crash.bin", O_CREAT | O_TRUNC | O_WRONLY, 0644);
  if (fd >= 0 && write(fd, current.data(), current.size()) >= 0) close(fd);
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

std::vector<Bytes> read_seeds(int argc, char **argv) {
  std::vector<Bytes> seeds{Bytes{}, Bytes(64, 0), Bytes(4096, 0xFF)};
  auto add = [&](const std::filesystem::path &path) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  };
  for (int i = 2; i < argc; i++) {
    if (std::filesystem::is_directory(argv[i])) {
      std::vector<std::filesystem::path> paths;
      for (const auto &entry : std::filesystem::directory_iterator(argv[i])) {
        if (entry.is_regular_file()) paths.push_back(entry.path());
      }
      std::sort(paths.begin(), paths.end());
      for (const auto &path : paths) add(path);
    } else {
      add(argv[i]);
    }
  }
  return seeds;
}

}  // namespace

// One random change: a flipped bit, a set byte, a boundary value, a copied, cut or inserted piece.
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) {
  static constexpr uint64_t kBoundaries[] = {0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, ~0ull};
  const size_t choice = size == 0 ? 5 : below(6);
  if (choice == 0) {
    data[below(size)] ^= static_cast<uint8_t>(1u << below(8));
  } else if (choice == 1) {
    data[below(size)] = static_cast<uint8_t>(random_bits());
  } else if (choice == 2) {
    const uint64_t value = kBoundaries[below(std::size(kBoundaries))];
    const size_t at = below(size);
    const size_t bytes = std::min(size - at, size_t{1} << below(4));
    for (size_t i = 0; i < bytes; i++) data[at + i] = static_cast<uint8_t>(value >> (8 * i));
  } else if (choice == 3) {
    const size_t from = below(size), to = below(size);
    const size_t bytes = std::min({size - from, size - to, below(256) + 1});
    std::copy_n(Bytes(data + from, data + from + bytes).begin(), bytes, data + to);
  } else if (choice == 4) {
    return below(size) + 1;
  } else if (size < max_size) {
    const size_t more = std::min(max_size - size, below(64) + 1);
    for (size_t i = 0; i < more; i++) data[size + i] = static_cast<uint8_t>(random_bits());
    return size + more;
  }
  return size;
}

int main(int argc, char **argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 10;
  if (LLVMFuzzerInitialize) LLVMFuzzerInitialize(&argc, &argv);
  for (int signal_number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) {
    signal(signal_number, save_and_die);
  }
  const std::vector<Bytes> seeds = read_seeds(argc, argv);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  uint64_t runs = 0;
  for (const Bytes &seed : seeds) {
    current = seed;
    LLVMFuzzerTestOneInput(current.data(), current.size());
    runs++;
  }
  while (std::chrono::steady_clock::now() < end) {
    Bytes input = seeds[below(seeds.size())];
    size_t size = input.size();
    input.resize(std::max(size * 2, size_t{4096}));
    if (input.size() > kMaxBytes) input.resize(std::max(size, kMaxBytes));
    for (size_t changes = below(8) + 1; changes > 0; changes--) {
      size = LLVMFuzzerCustomMutator
                 ? LLVMFuzzerCustomMutator(input.data(), size, input.size(),
                                           static_cast<unsigned int>(random_bits()))
                 : LLVMFuzzerMutate(input.data(), size, input.size());
    }
    input.resize(size);
    current = std::move(input);
    LLVMFuzzerTestOneInput(current.data(), current.size());
    runs++;
  }
  std::printf("%llu inputs from %zu seeds\n", static_cast<unsigned long long>(runs), seeds.size());
  std::printf("1 passed, 0 failed\n");
  return 0;
}
