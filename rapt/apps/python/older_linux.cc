// SPDX-License-Identifier: Apache-2.0
// Two functions by the versions that systems of manylinux_2_34 have: Debian 12's libraries have newer ones of
// the same name, which the linker would take, and the module would load nowhere else. The linker gives us the
// calls (--wrap, cmake/python.cmake). What is computed is the same: hypot's newer version only leaves errno
// alone, that of wait() may be cancelled by pthread_cancel.
#include <condition_variable>
#include <mutex>

extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
double rapt_older_hypot(double x, double y);
void rapt_older_wait(std::condition_variable* self, std::unique_lock<std::mutex>* lock);
__asm__(".symver rapt_older_hypot,hypot@GLIBC_2.2.5");
__asm__(".symver rapt_older_wait,_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");

__attribute__((visibility("hidden"))) double __wrap_hypot(double x, double y);
double __wrap_hypot(double x, double y) { return rapt_older_hypot(x, y); }

__attribute__((visibility("hidden"))) void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(
    std::condition_variable* self, std::unique_lock<std::mutex>* lock);
void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(std::condition_variable* self,
                                                                      std::unique_lock<std::mutex>* lock) {
  rapt_older_wait(self, lock);
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
}
