#include "tests/support/unruly.h"

#include <far/plugin.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

class unruly_device final : public far::plugin::device {
 public:
  unruly_device(std::string_view, far::plugin::bytes) {}
  void read(std::uint64_t, far::plugin::output&) override {}
  void write(std::uint64_t, far::plugin::bytes) override {}
  void erase(std::uint64_t) override {}

  void compute(std::uint32_t, far::plugin::bytes asked, far::plugin::output& into) override {
    unruly::arguments with;
    std::memcpy(&with, asked.data() + FAR_FUNCTION_HEAD, sizeof with);
    std::uint32_t parts = 0;
    std::memcpy(&parts, asked.data() + 20, sizeof parts);
    switch (with.how) {
      case unruly::well: break;
      case unruly::throw_text: throw std::runtime_error("a text");
      case unruly::throw_number: throw 7;
      case unruly::hang:
        for (volatile std::uint64_t turns = 0;;) turns = turns + 1;
      case unruly::write_outside: *nowhere_ = 1; break;
      case unruly::leave: _exit(0);
      case unruly::flood: return into.append(std::string_view(std::string(2'000'000, 'x')));
      case unruly::too_long: return lie(into, FAR_FUNCTION_MARK, parts * 8 + 8);
      case unruly::too_short: return lie(into, FAR_FUNCTION_MARK, parts * 8 - 4);
      case unruly::unmarked: return lie(into, 0, parts * 8);
      case unruly::take_memory:
        for (;;) {
          std::byte* volatile taken = new std::byte[1'000'000];  // clang leaves out what nobody uses
          std::memset(taken, 1, 1'000'000);
        }
      case unruly::fork_and_return: static_cast<void>(fork()); break;
      case unruly::fork_and_leave:
        if (fork() != 0) _exit(0);
        break;
      case unruly::fork_and_stay:
        if (fork() != 0) break;
        sleep(120);  // if nobody ends it
        _exit(0);
      case unruly::scribble: std::memset(const_cast<std::byte*>(asked.data()) + 24, 0xff, asked.size() - 24); break;
    }
    far::plugin::detail::map_parts<unruly>(asked, into);
  }

 private:
  static void lie(far::plugin::output& into, std::uint64_t mark, std::size_t bytes) {
    into.append(mark);
    into.append(std::string_view(std::string(bytes, '\1')));
  }

  volatile int* volatile nowhere_ = nullptr;
};

}  // namespace

FAR_DEVICE_PLUGIN(unruly_device, "unruly", "1.0")
