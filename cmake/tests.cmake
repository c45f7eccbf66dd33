# SPDX-License-Identifier: Apache-2.0
find_package(GTest REQUIRED)
include(GoogleTest)
file(GLOB end_to_end CONFIGURE_DEPENDS tests/*_test.cc)
add_executable(rapt_tests ${RAPT_TEST_SOURCES} ${end_to_end})
target_link_libraries(rapt_tests PRIVATE rapt GTest::gtest_main)
target_include_directories(rapt_tests PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_definitions(rapt_tests PRIVATE RAPT_SOURCE_DIR="${PROJECT_SOURCE_DIR}" RAPT_BINARY_DIR="${CMAKE_BINARY_DIR}")
gtest_discover_tests(rapt_tests DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 600)
