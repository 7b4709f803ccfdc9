# Every outside library of the house, one target each. README's table gives the reason for each.
find_package(Threads REQUIRED)
if(NOT ATTUNE_ENGINE_ONLY)
  find_path(CONCURRENTQUEUE_INCLUDE_DIR concurrentqueue/concurrentqueue.h REQUIRED)
endif()
if(ATTUNE_TSAN_ONLY)
  return()
endif()

# libtorch: CMAKE_PREFIX_PATH (or TORCH_DIR) names it; the Makefile brings it through pip otherwise.
add_library(attune_torch INTERFACE)
if(NOT ATTUNE_FUZZ)  # the fuzzers build only rooms without it
  if(DEFINED ENV{TORCH_DIR})
    list(APPEND CMAKE_PREFIX_PATH $ENV{TORCH_DIR})
  endif()
  find_package(Torch REQUIRED)
  # SYSTEM: its headers do not meet our warnings.
  target_include_directories(attune_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  target_link_libraries(attune_torch INTERFACE ${TORCH_LIBRARIES})
  separate_arguments(ATTUNE_TORCH_FLAGS UNIX_COMMAND "${TORCH_CXX_FLAGS}")
  # at::parallel_for is a header: without OpenMP it silently runs on one thread. The wheel's own libgomp, found first by the
  # run path, has the system's name, so there is one runtime in the process.
  target_compile_options(attune_torch INTERFACE ${ATTUNE_TORCH_FLAGS} -fopenmp)
  target_link_options(attune_torch INTERFACE -fopenmp)
endif()

find_package(OpenSSL REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
find_path(NLOHMANN_INCLUDE_DIR nlohmann/json.hpp REQUIRED)
add_library(attune_json INTERFACE)
target_include_directories(attune_json SYSTEM INTERFACE ${NLOHMANN_INCLUDE_DIR})

if(NOT ATTUNE_ENGINE_ONLY)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
  pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
  pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
  find_package(Boost 1.81 REQUIRED COMPONENTS json url)

  # CAF 0.17 comes without a CMake package.
  find_path(CAF_INCLUDE_DIR caf/all.hpp REQUIRED)
  find_library(CAF_CORE_LIBRARY caf_core REQUIRED)
  add_library(CAF::core UNKNOWN IMPORTED)
  set_target_properties(CAF::core PROPERTIES IMPORTED_LOCATION "${CAF_CORE_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${CAF_INCLUDE_DIR}")
  target_link_libraries(CAF::core INTERFACE Threads::Threads)

  find_package(spdlog REQUIRED)
  find_package(CLI11 REQUIRED)
  find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h REQUIRED)
  add_library(attune_toml INTERFACE)
  target_include_directories(attune_toml SYSTEM INTERFACE ${TOMLPLUSPLUS_INCLUDE_DIR})
  target_include_directories(attune_toml INTERFACE ${CMAKE_CURRENT_LIST_DIR}/toml_parser)
  find_path(PROMETHEUS_INCLUDE_DIR prometheus/registry.h REQUIRED)
  find_library(PROMETHEUS_CORE_LIBRARY prometheus-cpp-core REQUIRED)
  add_library(prometheus::core UNKNOWN IMPORTED)
  set_target_properties(prometheus::core PROPERTIES IMPORTED_LOCATION "${PROMETHEUS_CORE_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${PROMETHEUS_INCLUDE_DIR}")
  target_link_libraries(prometheus::core INTERFACE Threads::Threads)
endif()
