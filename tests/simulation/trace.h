// Failures and traces of a simulation.
#pragma once

namespace far::simulation {

// With --verbose: prints what happens, printf-style, one line each.
void set_tracing(bool on);
[[nodiscard]] bool tracing();
void trace(const char* format, ...) __attribute__((format(printf, 1, 2)));

// The engine or the simulated environment did what it must not: says what, and ends the process. The command that
// repeats the run is printed by the handler of SIGABRT.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace far::simulation
