#include "cuda/error.hpp"
#include "ops/device.cuh"

namespace lockstep::ops::cuda_kernels {

namespace {

constexpr int kThreads = 256;
/// Sorted places of one block: short enough that a frequent token is spread over many blocks.
constexpr int kChunk = 32;
constexpr int kRunAhead = 8;  // the same of runs
constexpr int kAhead = 8;     // rows that a thread asks for before it uses the first
constexpr std::uint32_t kNoToken = 0xffffffffu;

/// A warp a row.
template <class T, int N>
__global__ void embed_rows(const std::int64_t* tokens, std::int64_t rows, std::int64_t length,
                           std::int64_t columns, std::int64_t vocabulary, const T* __restrict__ token_weight,
                           const T* __restrict__ position_weight, T* __restrict__ out) {
  const std::int64_t row = std::int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (row >= rows) return;
  const std::int64_t token = tokens[row];
  const int packs = static_cast<int>(columns / N);
  if (token < 0 || token >= vocabulary) {
    for (std::int64_t c = threadIdx.x % kWarp; c < columns; c += kWarp)
      out[row * columns + c] = from_float<T>(NAN);
    return;
  }
#pragma unroll 4
  for (int p = threadIdx.x % kWarp; p < packs; p += kWarp) {
    const Pack<T, N> a = load<N>(token_weight + token * columns, p);
    const Pack<T, N> b = load<N>(position_weight + row % length * columns, p);
    Pack<T, N> sum;
#pragma unroll
    for (int j = 0; j < N; ++j) sum.at[j] = from_float<T>(to_float(a.at[j]) + to_float(b.at[j]));
    store(out + row * columns, p, sum);
  }
}

template <class T, int N>
__device__ void store_sum(T* target, std::int64_t pack, Pack<T, N> there, const float (&sum)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j) there.at[j] = from_float<T>(to_float(there.at[j]) + sum[j]);
  store(target, pack, there);
}

/// A thread owns a pack of one position and adds over the batch in its order.
template <class T, int N>
__global__ void add_positions(const T* d_out, std::int64_t batch, std::int64_t count, T* target) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  float sum[N] = {};
  for (std::int64_t base = 0; base < batch; base += kAhead) {
    Pack<T, N> ahead[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (base + k < batch) ahead[k] = load<N>(d_out, (base + k) * count + i);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (base + k >= batch) break;
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j] += to_float(ahead[k].at[j]);
    }
  }
  store_sum<T, N>(target, i, load<N>(target, i), sum);
}

/// The tokens of a chunk of sorted places, with one more on each side, and their rows.
struct Chunk {
  std::uint32_t tokens[kChunk + 2];
  std::int32_t rows[kChunk];
};

__device__ int read_chunk(const std::uint32_t* tokens, const std::int32_t* rows, std::int64_t count,
                          Chunk& chunk) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kChunk;
  const std::int64_t left = count - first;
  const int used = left < kChunk ? static_cast<int>(left) : kChunk;
  for (int i = threadIdx.x; i < used + 2; i += blockDim.x) {
    const std::int64_t place = first + i - 1;
    chunk.tokens[i] = place >= 0 && place < count ? tokens[place] : kNoToken;
  }
  for (int i = threadIdx.x; i < used; i += blockDim.x) chunk.rows[i] = rows[first + i];
  __syncthreads();
  return used;
}

/// A block adds the runs of equal tokens in its chunk. Runs inside the chunk are finished here; a run that
/// crosses the chunk's border leaves its sum in partials [chunks, 2, stride]: head, it came from the chunk
/// before; tail, it began here and goes on.
template <class T, int N>
__global__ void sum_runs(const T* d_out, const std::uint32_t* tokens, const std::int32_t* rows,
                         std::int64_t count, std::int64_t columns, std::int64_t vocabulary, float* partials,
                         std::int64_t stride, T* target) {
  __shared__ Chunk chunk;
  const int used = read_chunk(tokens, rows, count, chunk);
  float* const head = partials + std::int64_t{blockIdx.x} * 2 * stride;
  for (std::int64_t p = threadIdx.x; p < columns / N; p += blockDim.x) {
    float sum[N] = {};
    bool from_before = chunk.tokens[0] == chunk.tokens[1];
    for (int base = 0; base < used; base += kRunAhead) {
      Pack<T, N> ahead[kRunAhead];
      Pack<T, N> there[kRunAhead];
#pragma unroll
      for (int k = 0; k < kRunAhead; ++k) {
        if (base + k >= used) break;
        ahead[k] = load<N>(d_out + chunk.rows[base + k] * columns, p);
        const std::uint32_t token = chunk.tokens[base + k + 1];
        if (token != chunk.tokens[base + k + 2] && token < vocabulary)
          there[k] = load<N>(target + token * columns, p);
      }
#pragma unroll
      for (int k = 0; k < kRunAhead; ++k) {
        if (base + k >= used) break;
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] += to_float(ahead[k].at[j]);
        const std::uint32_t token = chunk.tokens[base + k + 1];
        if (token == chunk.tokens[base + k + 2]) continue;
        if (from_before) {
          store_floats(head + p * N, sum);
        } else if (token < vocabulary) {
          store_sum<T, N>(target + token * columns, p, there[k], sum);
        }
        from_before = false;
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] = 0;
      }
    }
    if (chunk.tokens[used] == chunk.tokens[used + 1])
      store_floats(head + (from_before ? 0 : stride) + p * N, sum);
  }
}

/// The last chunk that begins with `token`, as chunk `first` + 1 does: by steps that double and then by
/// halving, since most runs are short.
__device__ std::int64_t last_chunk_of(const std::uint32_t* tokens, std::int64_t chunks, std::int64_t first,
                                      std::uint32_t token) {
  std::int64_t low = first + 1;
  std::int64_t width = 1;
  while (low + width < chunks && tokens[(low + width) * kChunk] == token) {
    low += width;
    width *= 2;
  }
  std::int64_t high = low + width < chunks ? low + width : chunks;
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    if (tokens[middle * kChunk] == token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

constexpr int kGroups = 4;

/// The block of the chunk in which a crossing run begins adds its parts: kGroups rows of threads take
/// neighbouring chunks each, and are then added in their order. A thread owns four columns.
template <class T>
__global__ void merge_runs(const std::uint32_t* tokens, std::int64_t count, std::int64_t columns,
                           std::int64_t vocabulary, const float* partials, std::int64_t stride, T* target) {
  __shared__ float4 parts[kGroups][kWarp];
  const std::int64_t chunk = blockIdx.x;
  const std::int64_t next = (chunk + 1) * kChunk;
  if (next >= count) return;
  const std::uint32_t token = tokens[next - 1];
  const std::uint32_t after = tokens[next];
  const std::uint32_t before = chunk > 0 ? tokens[chunk * kChunk - 1] : kNoToken;
  if (after != token || before == token || token >= vocabulary) return;
  const std::int64_t last = last_chunk_of(tokens, gridDim.x, chunk, token);
  const std::int64_t column = (std::int64_t{blockIdx.y} * kWarp + threadIdx.x) * 4;
  const std::int64_t share = (last - chunk + 1 + kGroups - 1) / kGroups;
  const std::int64_t begin = chunk + threadIdx.y * share;
  const std::int64_t end = begin + share < last + 1 ? begin + share : last + 1;
  float4 sum = make_float4(0, 0, 0, 0);
  if (column < columns) {
#pragma unroll 8
    for (std::int64_t c = begin; c < end; ++c) {
      const float* const from = partials + (c * 2 + (c == chunk ? 1 : 0)) * stride + column;
      const float4 part = *reinterpret_cast<const float4*>(from);
      sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
    }
  }
  parts[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0) return;
  for (int group = 1; group < kGroups; ++group) {
    const float4 part = parts[group][threadIdx.x];
    sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
  }
  const float sums[4] = {sum.x, sum.y, sum.z, sum.w};
  for (int j = 0; j < 4 && column + j < columns; ++j) {
    T& place = target[token * columns + column + j];
    place = from_float<T>(to_float(place) + sums[j]);
  }
}

/// Partials' rows begin at multiples of 16 bytes.
std::int64_t stride_of(const EmbeddingShape& shape) {
  return (shape.columns + 3) / 4 * 4;
}

/// Calls `body` with the element's type and with the elements of an access as a constant.
template <class Body>
void with_access(Element element, std::int64_t columns, bool aligned, Body body) {
  with_floating(element, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    if (aligned && columns % kWide<T> == 0) {
      body(type, std::integral_constant<int, kWide<T>>());
    } else {
      body(type, std::integral_constant<int, 1>());
    }
  });
}

}  // namespace

void embedding_forward(const EmbeddingShape& shape, Element element, const std::int64_t* tokens,
                       const void* token_weight, const void* position_weight, void* out,
                       cudaStream_t stream) {
  const std::int64_t rows = shape.batch * shape.length;
  if (rows == 0) return;
  const bool aligned = is_aligned(token_weight) && is_aligned(position_weight) && is_aligned(out);
  with_access(element, shape.columns, aligned, [&](auto* type, auto wide) {
    using T = std::remove_pointer_t<decltype(type)>;
    constexpr int N = decltype(wide)::value;
    embed_rows<T, N><<<blocks_for(rows, kThreads / kWarp), kThreads, 0, stream>>>(
        tokens, rows, shape.length, shape.columns, shape.vocabulary, static_cast<const T*>(token_weight),
        static_cast<const T*>(position_weight), static_cast<T*>(out));
  });
  cuda::check(cudaGetLastError(), "embedding_forward");
}

void position_gradient(const EmbeddingShape& shape, Element element, const void* d_out, void* target,
                       cudaStream_t stream) {
  if (shape.batch * shape.length * shape.columns == 0) return;
  const bool aligned = is_aligned(d_out) && is_aligned(target);
  with_access(element, shape.columns, aligned, [&](auto* type, auto wide) {
    using T = std::remove_pointer_t<decltype(type)>;
    constexpr int N = decltype(wide)::value;
    const std::int64_t packs = shape.length * shape.columns / N;
    add_positions<T, N><<<blocks_for(packs, kThreads), kThreads, 0, stream>>>(
        static_cast<const T*>(d_out), shape.batch, packs, static_cast<T*>(target));
  });
  cuda::check(cudaGetLastError(), "position_gradient");
}

std::int64_t token_partials(const EmbeddingShape& shape) {
  return std::int64_t{blocks_for(shape.batch * shape.length, kChunk)} * 2 * stride_of(shape);
}

void token_gradient(const EmbeddingShape& shape, Element element, const void* d_out,
                    const SortedTokens& sorted, float* partials, void* target, cudaStream_t stream) {
  const std::int64_t count = shape.batch * shape.length;
  if (count * shape.columns == 0) return;
  const unsigned chunks = blocks_for(count, kChunk);
  const std::int64_t stride = stride_of(shape);
  const bool aligned = is_aligned(d_out) && is_aligned(target);
  with_access(element, shape.columns, aligned, [&](auto* type, auto wide) {
    using T = std::remove_pointer_t<decltype(type)>;
    constexpr int N = decltype(wide)::value;
    const std::int64_t warps = (shape.columns / N + kWarp - 1) / kWarp;
    const int threads = static_cast<int>(warps < 8 ? warps : 8) * kWarp;
    sum_runs<T, N><<<chunks, threads, 0, stream>>>(static_cast<const T*>(d_out), sorted.tokens, sorted.rows,
                                                   count, shape.columns, shape.vocabulary, partials, stride,
                                                   static_cast<T*>(target));
    const dim3 grid(chunks, blocks_for(shape.columns, kWarp * 4));
    merge_runs<T><<<grid, dim3(kWarp, kGroups), 0, stream>>>(
        sorted.tokens, count, shape.columns, shape.vocabulary, partials, stride, static_cast<T*>(target));
  });
  cuda::check(cudaGetLastError(), "token_gradient");
}

}  // namespace lockstep::ops::cuda_kernels
