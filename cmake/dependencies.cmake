# Every library that lockstep links, as one imported target each.
#
# LibTorch, cuBLASLt, cuDNN, NCCL and cudart are linked as the very files that Torch loads, found beside Torch's own
# package (LOCKSTEP_TORCH_DIR, CMAKE_PREFIX_PATH) and not through Torch's CMake package, which asks for a complete
# CUDA toolkit on the building machine. docs/adr/0004-torch-without-its-cmake-package.md says more.

set(LOCKSTEP_TORCH_DIR "" CACHE PATH "Folder that holds include/ and lib/ of LibTorch")
set(LOCKSTEP_CUDA_DIR "" CACHE PATH "CUDA toolkit, where LibTorch brings no CUDA headers of its own")
set(LOCKSTEP_CUDNN_FRONTEND_DIR "" CACHE PATH "Folder that holds cudnn_frontend.h")

find_path(torch_include torch/library.h HINTS ${LOCKSTEP_TORCH_DIR} PATH_SUFFIXES include REQUIRED)
get_filename_component(torch_root ${torch_include} DIRECTORY)
get_filename_component(site_packages ${torch_root} DIRECTORY)
set(cuda_hints ${site_packages}/nvidia/cu13 ${site_packages}/nvidia/cuda_runtime ${LOCKSTEP_CUDA_DIR})

function(lockstep_shared_library target names hints)
  find_library(${target}_library NAMES ${names} HINTS ${hints} PATH_SUFFIXES lib lib64 REQUIRED)
  add_library(lockstep::${target} SHARED IMPORTED GLOBAL)
  set_target_properties(lockstep::${target} PROPERTIES IMPORTED_LOCATION ${${target}_library})
endfunction()

# CUDA runtime, cuBLASLt, cuDNN, NCCL
find_path(cuda_include cublasLt.h HINTS ${cuda_hints} PATH_SUFFIXES include REQUIRED)
lockstep_shared_library(cudart "libcudart.so.13;libcudart.so.12;cudart" "${cuda_hints}")
target_include_directories(lockstep::cudart SYSTEM INTERFACE ${cuda_include})
lockstep_shared_library(cublaslt "libcublasLt.so.13;libcublasLt.so.12;cublasLt" "${cuda_hints}")
lockstep_shared_library(nvrtc "libnvrtc.so.13;libnvrtc.so.12;nvrtc" "${cuda_hints}")   # the cuDNN frontend names it
find_path(cudnn_include cudnn.h HINTS ${site_packages}/nvidia/cudnn PATH_SUFFIXES include REQUIRED)
lockstep_shared_library(cudnn "libcudnn.so.9;cudnn" "${site_packages}/nvidia/cudnn")
find_path(cudnn_frontend_include cudnn_frontend.h HINTS ${LOCKSTEP_CUDNN_FRONTEND_DIR} ${site_packages}/include REQUIRED)
target_include_directories(lockstep::cudnn SYSTEM INTERFACE ${cudnn_include} ${cudnn_frontend_include})
find_path(nccl_include nccl.h HINTS ${site_packages}/nvidia/nccl PATH_SUFFIXES include REQUIRED)
lockstep_shared_library(nccl_api "libnccl.so.2;nccl" "${site_packages}/nvidia/nccl")
target_include_directories(lockstep::nccl_api SYSTEM INTERFACE ${nccl_include})

# LibTorch
foreach(part torch torch_cpu torch_cuda c10 c10_cuda)
  lockstep_shared_library(${part} ${part} ${torch_root})
endforeach()
add_library(lockstep_libtorch INTERFACE)
add_library(lockstep::libtorch ALIAS lockstep_libtorch)
target_include_directories(lockstep_libtorch SYSTEM INTERFACE ${torch_include} ${torch_include}/torch/csrc/api/include)
target_link_libraries(lockstep_libtorch INTERFACE
  lockstep::torch_cpu lockstep::c10 lockstep::torch_cuda lockstep::c10_cuda lockstep::cudart)
# Torch registers its CUDA kernels when the library loads: keep it although no symbol may be used.
target_link_options(lockstep_libtorch INTERFACE "LINKER:--no-as-needed")

# Open MPI
set(MPI_CXX_SKIP_MPICXX TRUE)   # the removed C++ bindings of MPI would leave undefined symbols
find_package(MPI REQUIRED COMPONENTS CXX)

# HDF5: the serial build by name, since the Open MPI build is not thread-safe and pkg-config's plain name finds it first
find_package(PkgConfig)
if(PkgConfig_FOUND)
  pkg_check_modules(hdf5_serial IMPORTED_TARGET hdf5-serial)
endif()
add_library(lockstep_hdf5_api INTERFACE)
add_library(lockstep::hdf5_api ALIAS lockstep_hdf5_api)
if(hdf5_serial_FOUND)
  target_link_libraries(lockstep_hdf5_api INTERFACE PkgConfig::hdf5_serial)
else()
  find_package(HDF5 REQUIRED COMPONENTS C)
  target_include_directories(lockstep_hdf5_api SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
  target_link_libraries(lockstep_hdf5_api INTERFACE ${HDF5_C_LIBRARIES})
endif()

# SentencePiece, shared: Debian ships no archives. Its own copies of protobuf and Abseil stay inside it.
find_path(sentencepiece_include sentencepiece_trainer.h REQUIRED)
find_library(sentencepiece_library sentencepiece REQUIRED)
find_library(sentencepiece_train_library sentencepiece_train REQUIRED)
add_library(lockstep_sentencepiece INTERFACE)
add_library(lockstep::sentencepiece ALIAS lockstep_sentencepiece)
target_include_directories(lockstep_sentencepiece SYSTEM INTERFACE ${sentencepiece_include})
target_link_libraries(lockstep_sentencepiece INTERFACE ${sentencepiece_train_library} ${sentencepiece_library})

if(POLICY CMP0167)
  cmake_policy(SET CMP0167 OLD)   # CMake's own search for Boost: distributions' Boost packages differ in what they bring
endif()
set(Boost_USE_STATIC_LIBS ON)   # a binary that also runs where another Boost is installed
find_package(Boost REQUIRED COMPONENTS program_options)
find_path(nlohmann_include nlohmann/json.hpp REQUIRED)
find_package(Threads REQUIRED)
