# One INTERFACE target carries the standard, the warnings and the sanitizers; only our own code links it.
add_library(attune_flags INTERFACE)
target_compile_features(attune_flags INTERFACE cxx_std_20)
target_compile_options(attune_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror)
# GCC 12 reports these inside std::string and libtorch headers when inlining; they are false alarms there.
target_compile_options(attune_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict -Wno-maybe-uninitialized -Wno-dangling-pointer -Wno-stringop-overflow -Wno-array-bounds -Wno-stringop-overread>)
if(ATTUNE_SANITIZE)
  target_compile_options(attune_flags INTERFACE -fsanitize=${ATTUNE_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(attune_flags INTERFACE -fsanitize=${ATTUNE_SANITIZE})
  if(ATTUNE_SANITIZE MATCHES thread)
    target_compile_options(attune_flags INTERFACE -Wno-tsan)  # the queue's fences, which it also annotates by itself
  endif()
endif()

# attune_room(NAME text SOURCES a.cpp b.cpp LINKS attune::vocabulary ICU::uc PRIVATE_LINKS ...)
# makes library attune_NAME with alias attune::NAME. Its links are the arrows that leave the room.
function(attune_room)
  cmake_parse_arguments(ROOM "" "NAME" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  add_library(attune_${ROOM_NAME} STATIC ${ROOM_SOURCES})
  add_library(attune::${ROOM_NAME} ALIAS attune_${ROOM_NAME})
  target_include_directories(attune_${ROOM_NAME} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(attune_${ROOM_NAME} PUBLIC ${ROOM_LINKS} PRIVATE attune_flags ${ROOM_PRIVATE_LINKS})
endfunction()

# attune_test(NAME engine_kv SOURCES ... LINKS ...): one Catch2 program per room, its cases found by ctest.
function(attune_test)
  cmake_parse_arguments(TEST "" "NAME" "SOURCES;LINKS" ${ARGN})
  add_executable(${TEST_NAME}_test ${TEST_SOURCES})
  set_target_properties(${TEST_NAME}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_include_directories(${TEST_NAME}_test PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/tests)
  target_compile_definitions(${TEST_NAME}_test PRIVATE ATTUNE_TEST_DATA="${ATTUNE_TEST_DATA}")
  target_link_libraries(${TEST_NAME}_test PRIVATE ${TEST_LINKS} attune_catch_main attune_flags)
  catch_discover_tests(${TEST_NAME}_test TEST_PREFIX "${TEST_NAME}: " PROPERTIES LABELS unit TIMEOUT 300)
endfunction()
