// A plugin whose devices misbehave on request, for tests. It holds a number, to which `add` adds.
#include <far/plugin.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

class troublemaker final : public far::plugin::device {
 public:
  enum operations : std::uint32_t {
    add = 1,
    value = 2,
    throw_text = 3,
    throw_number = 4,
    hang = 5,
    write_outside = 6,
    take_memory = 7,  // arguments: bytes
    leave = 8,
    flood = 9,  // more than a result may have
    talk = 10,  // writes into the server's socket
    options = 11,
    pause = 12,  // arguments: microseconds; adds 1 afterwards
    process = 13,
    slow_to_save = 14,  // arguments: microseconds that save() takes from now on
    start_daemon = 15,  // result: the number of its process, which is in a session of its own
    throw_behind_result = 16,
    throw_unfit = 17,  // a text that is long, and controls terminals
    // Result: the number of the child; 0 in the child, which goes on as its parent does.
    fork_and_return = 18,
    fork_and_throw = 19,
    fork_and_leave = 20,  // the child alone goes on
    fork_and_stay = 21,   // the child stays in the call
  };

  troublemaker(std::string_view options_of_operator, far::plugin::bytes parameters) : options_(options_of_operator) {
    const std::string_view text(reinterpret_cast<const char*>(parameters.data()), parameters.size());
    if (text == "refuse") throw std::invalid_argument("as it was asked to");
    if (text == "hang") spin();
    if (text == "crash") std::abort();
  }

  void read(std::uint64_t object, far::plugin::output& into) override {
    if (object != 0) throw far::plugin::no_object();
    into.append(value_);
  }
  void write(std::uint64_t object, far::plugin::bytes contents) override {
    if (object == 13) throw std::invalid_argument("not this one");
    value_ = far::plugin::take<std::uint64_t>(contents);
  }
  void erase(std::uint64_t object) override {
    if (object == 14) throw std::invalid_argument("not that one");
    throw far::plugin::no_object();
  }

  void compute(std::uint32_t opcode, far::plugin::bytes arguments, far::plugin::output& into) override {
    switch (opcode) {
      case add: return into.append(value_ += far::plugin::take<std::uint64_t>(arguments));
      case value: return into.append(value_);
      case throw_text: throw std::runtime_error("a text");
      case throw_number: throw 7;
      case throw_behind_result:
        into.append(std::string_view("a part of a result, "));
        throw std::runtime_error("a text");
      case throw_unfit: throw std::runtime_error("\x1b[2J\n" + std::string(100'000, '\xff'));
      case hang: return spin();
      case write_outside: *nowhere_ = 1; return;
      case take_memory: return take_memory_of(far::plugin::take<std::uint64_t>(arguments));
      case leave: _exit(0);
      case flood: return into.append(std::string_view(std::string(2'000'000, 'x')));
      case talk: return void(::write(STDIN_FILENO, "nonsense of some length", 23));
      case options: return into.append(std::string_view(options_));
      case pause:
        usleep(static_cast<useconds_t>(far::plugin::take<std::uint64_t>(arguments)));
        return into.append(++value_);
      case process: return into.append(static_cast<std::uint64_t>(getpid()));
      case start_daemon: return into.append(daemon_process());
      case fork_and_return: return into.append(static_cast<std::uint64_t>(fork()));
      case fork_and_throw: throw std::runtime_error(fork() == 0 ? "the child" : "the parent");
      case fork_and_leave:
        if (fork() != 0) _exit(0);
        return into.append(value_);
      case fork_and_stay: return into.append(staying_child());
      case slow_to_save: save_takes_us_ = far::plugin::take<std::uint64_t>(arguments); return;
      default: throw std::invalid_argument("no such operation");
    }
  }

  void save(far::plugin::output& into) override {
    usleep(static_cast<useconds_t>(save_takes_us_));
    into.append(value_);
  }
  void load(far::plugin::bytes all) override { value_ = far::plugin::take<std::uint64_t>(all); }

 private:
  [[noreturn]] static void spin() {
    for (volatile std::uint64_t turns = 0;;) turns = turns + 1;
  }

  // As daemon(3) does it, but that the daemon keeps all descriptors.
  static std::uint64_t daemon_process() {
    int ends[2] = {-1, -1};
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    const pid_t parent = fork();
    if (parent == 0) {
      setsid();
      if (fork() != 0) _exit(0);
      const auto number = static_cast<std::uint64_t>(getpid());
      if (::write(ends[1], &number, sizeof number) != sizeof number) _exit(1);
      sleep(120);  // if nobody ends it
      _exit(0);
    }
    std::uint64_t number = 0;
    if (parent < 0 || ::read(ends[0], &number, sizeof number) != sizeof number) throw std::runtime_error("no daemon");
    close(ends[0]);
    close(ends[1]);
    waitpid(parent, nullptr, 0);
    return number;
  }

  static std::uint64_t staying_child() {
    const pid_t child = fork();
    if (child != 0) return static_cast<std::uint64_t>(child);
    sleep(120);  // if nobody ends it
    _exit(0);
  }

  void take_memory_of(std::uint64_t size) {
    auto taken = std::make_unique<std::byte[]>(size);
    std::memset(taken.get(), 1, size);
    taken_.push_back(std::move(taken));
  }

  const std::string options_;
  volatile int* volatile nowhere_ = nullptr;
  std::uint64_t value_ = 0;
  std::uint64_t save_takes_us_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> taken_;
};

}  // namespace

FAR_DEVICE_PLUGIN(troublemaker, "troublemaker", "1.0")
