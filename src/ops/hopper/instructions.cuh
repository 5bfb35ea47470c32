#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

/// Hopper's own instructions (PTX ISA 8.0, target sm_90a), by the names that PTX has for them: barriers in
/// shared memory, tensor copies, products of a warpgroup.
namespace lockstep::ops::hopper {

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

/// A barrier in shared memory that changes phase after `arrivals` arrivals, and after as many bytes as were
/// announced.
__device__ inline void barrier_init(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}
/// Makes initialised barriers visible to the other blocks of the cluster and to tensor copies.
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ inline void arrive_expecting(std::uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
/// Arrives at the same barrier of block `rank` of the cluster.
__device__ inline void arrive_at(std::uint64_t* barrier, int rank) {
  asm volatile(
      "{\n"
      ".reg .b32 place;\n"
      "mapa.shared::cluster.u32 place, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [place];\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}
/// Returns once the phase of this parity is over.
__device__ inline void wait(std::uint64_t* barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

/// Stages of shared memory take turns; a stage's barrier changes phase with each round.
template <int kStages>
struct RingStage {
  int index = 0;
  std::uint32_t round = 0;
  __device__ void advance() {
    if (++index < kStages) return;
    index = 0;
    round ^= 1;
  }
};

__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ inline int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Copies the box of `map` whose first element is at (inner, outer) to shared memory; its bytes count for
/// `barrier`. Elements outside of the tensor are zeros.
__device__ inline void copy_box(void* to, const CUtensorMap& map, int inner, int outer,
                                std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(shared_address(to)),
      "l"(&map), "r"(inner), "r"(outer), "r"(shared_address(barrier))
      : "memory");
}
/// The same to the same place of every block of the cluster in `blocks`, one bit each, and their barriers.
__device__ inline void copy_box_to(std::uint16_t blocks, void* to, const CUtensorMap& map, int inner,
                                   int outer, std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%2, "
      "%3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(&map), "r"(inner), "r"(outer), "r"(shared_address(barrier)), "h"(blocks)
      : "memory");
}
__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// How wgmma finds a matrix in shared memory that a tensor copy wrote with 128-byte swizzle; strides in
/// bytes.
__device__ inline std::uint64_t matrix_descriptor(const void* matrix, int leading, int stride) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  return std::uint64_t{(shared_address(matrix) & 0x3ffff) >> 4} | std::uint64_t(leading >> 4) << 16 |
         std::uint64_t(stride >> 4) << 32 | kSwizzle128;
}

__device__ inline void products_begin() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Returns once at most kPending groups of this warpgroup's products are under way.
template <int kPending>
__device__ inline void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// The compiler reads `sums` after what stands before this; no instruction.
template <int kCount>
__device__ inline void keep_after(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

/// d (+)= a [64, 16] x b [16, 192] of one warpgroup, summed in float, from shared memory; a by rows, b by
/// rows or by columns. Of each 8 columns a thread holds four sums: two neighbours of row lane / 4 of its
/// warp's 16 rows, two of the row 8 below, from column lane % 4 * 2 on.
#define LOCKSTEP_WGMMA(TYPE)                                                                            \
  asm volatile(                                                                                         \
      "{\n"                                                                                             \
      ".reg .pred adds;\n"                                                                              \
      "setp.ne.b32 adds, %98, 0;\n"                                                                     \
      "wgmma.mma_async.sync.aligned.m64n192k16.f32." TYPE "." TYPE                                      \
      " {"                                                                                              \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "                                              \
      "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "                                    \
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "                                    \
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                                    \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "                                    \
      "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "                                    \
      "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "                                    \
      "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"                                      \
      "}, %96, %97, adds, 1, 1, 0, %99;\n"                                                              \
      "}\n"                                                                                             \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),        \
        "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),      \
        "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),      \
        "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),      \
        "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),      \
        "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),      \
        "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),      \
        "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),      \
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]),      \
        "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]),      \
        "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]),      \
        "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]),      \
        "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])                                              \
      : "l"(a), "l"(b), "r"(adds ? 1 : 0), "n"(kByColumns ? 0 : 1))
template <class T, bool kByColumns>
__device__ inline void multiply_add(float (&d)[96], std::uint64_t a, std::uint64_t b, bool adds) {
  if constexpr (std::is_same_v<T, __half>) {
    LOCKSTEP_WGMMA("f16");
  } else {
    LOCKSTEP_WGMMA("bf16");
  }
}
#undef LOCKSTEP_WGMMA

/// d (+)= a [64, 16] x b [16, 256], summed in float, from shared memory, both by columns: as a stored [16,
/// 64]. A thread's sums lie as those of multiply_add.
#define LOCKSTEP_WGMMA(TYPE)                                                                              \
  asm volatile(                                                                                           \
      "{\n"                                                                                               \
      ".reg .pred adds;\n"                                                                                \
      "setp.ne.b32 adds, %130, 0;\n"                                                                      \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPE "." TYPE                                        \
      " {"                                                                                                \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "                                                \
      "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "                                      \
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "                                      \
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                                      \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "                                      \
      "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "                                      \
      "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "                                      \
      "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                                      \
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "                              \
      "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, "                          \
      "%120, %121, %122, %123, %124, %125, %126, %127"                                                    \
      "}, %128, %129, adds, 1, 1, 1, 1;\n"                                                                \
      "}\n"                                                                                               \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),   \
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),          \
        "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),        \
        "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),        \
        "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),        \
        "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),        \
        "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),        \
        "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),        \
        "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),        \
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]),        \
        "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]),        \
        "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]),        \
        "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]),        \
        "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]), "+f"(d[97]), "+f"(d[98]),        \
        "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]),  \
        "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), "+f"(d[112]), \
        "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]), \
        "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), \
        "+f"(d[127])                                                                                      \
      : "l"(a), "l"(b), "r"(adds ? 1 : 0))
template <class T>
__device__ inline void multiply_columns_add(float (&d)[128], std::uint64_t a, std::uint64_t b, bool adds) {
  if constexpr (std::is_same_v<T, __half>) {
    LOCKSTEP_WGMMA("f16");
  } else {
    LOCKSTEP_WGMMA("bf16");
  }
}
#undef LOCKSTEP_WGMMA

}  // namespace lockstep::ops::hopper
