# lockstep_room(NAME [TORCH] USES room... [LINKS library...])
#   one static library lockstep::NAME from every .cpp and .cu of this folder; headers are included as "NAME/file.hpp".
# lockstep_tests(NAME [TORCH] [RANKS 1 2 4] ROOMS room... [LINKS library...])
#   one program from every *_test.cpp of this folder. It runs once alone; with RANKS, the tests tagged [ranks] run
#   again under mpirun at each of those sizes.

add_library(lockstep_flags INTERFACE)
target_compile_options(lockstep_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-unused-parameter>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall --expt-relaxed-constexpr --diag-suppress=20012>)
target_include_directories(lockstep_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer>)
  target_link_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()

# ccache keeps what it compiled; it needs to see which precompiled header a file used.
find_program(ccache_program ccache)
if(ccache_program AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${ccache_program})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${ccache_program})
endif()

# Torch's headers, compiled once for every room and test that uses them.
add_library(lockstep_torch_headers OBJECT ${CMAKE_SOURCE_DIR}/cmake/torch_headers.cpp)
target_link_libraries(lockstep_torch_headers PRIVATE lockstep_flags lockstep::libtorch)
if(LOCKSTEP_TORCH_PCH)
  target_precompile_headers(lockstep_torch_headers PRIVATE <torch/torch.h>)
endif()

function(lockstep_use_torch target scope)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  target_link_libraries(${target} ${scope} lockstep::libtorch)
  if(LOCKSTEP_TORCH_PCH)
    target_precompile_headers(${target} REUSE_FROM lockstep_torch_headers)
  endif()
endfunction()

function(lockstep_room name)
  cmake_parse_arguments(room "TORCH" "" "USES;LINKS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp ${CMAKE_CURRENT_SOURCE_DIR}/*.cu)
  if(NOT sources)
    add_library(lockstep_${name} INTERFACE)
    add_library(lockstep::${name} ALIAS lockstep_${name})
    list(TRANSFORM room_USES PREPEND lockstep:: OUTPUT_VARIABLE used)
    target_link_libraries(lockstep_${name} INTERFACE lockstep_flags ${room_LINKS} ${used})
    return()
  endif()
  add_library(lockstep_${name} STATIC ${sources})
  add_library(lockstep::${name} ALIAS lockstep_${name})
  set_target_properties(lockstep_${name} PROPERTIES CUDA_SEPARABLE_COMPILATION OFF)
  target_link_libraries(lockstep_${name} PUBLIC lockstep_flags ${room_LINKS})
  foreach(used ${room_USES})
    target_link_libraries(lockstep_${name} PUBLIC lockstep::${used})
  endforeach()
  if(room_TORCH)
    lockstep_use_torch(lockstep_${name} PUBLIC)
  endif()
endfunction()

function(lockstep_add_test name)
  cmake_parse_arguments(test "" "TIMEOUT;LABEL" "COMMAND" ${ARGN})
  if(NOT test_TIMEOUT)
    set(test_TIMEOUT 300)
  endif()
  add_test(NAME ${name} COMMAND ${test_COMMAND})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${test_TIMEOUT} LABELS "${test_LABEL}"
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1;OMPI_MCA_hwloc_base_binding_policy=none;OMP_NUM_THREADS=1")
endfunction()

function(lockstep_tests name)
  cmake_parse_arguments(tests "TORCH" "TIMEOUT" "ROOMS;LINKS;RANKS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cpp)
  add_executable(${name}_test ${sources})
  target_link_libraries(${name}_test PRIVATE lockstep_test_main ${tests_LINKS})
  foreach(room ${tests_ROOMS})
    target_link_libraries(${name}_test PRIVATE lockstep::${room})
  endforeach()
  if(tests_TORCH)
    lockstep_use_torch(${name}_test PRIVATE)
  endif()
  lockstep_add_test(${name} COMMAND ${name}_test TIMEOUT ${tests_TIMEOUT} LABEL ${name})
  foreach(ranks ${tests_RANKS})
    lockstep_add_test(${name}.np${ranks} TIMEOUT ${tests_TIMEOUT} LABEL ${name}
      COMMAND ${MPIEXEC_EXECUTABLE} -np ${ranks} $<TARGET_FILE:${name}_test> [ranks])
    set_tests_properties(${name}.np${ranks} PROPERTIES PROCESSORS ${ranks})
  endforeach()
endfunction()
