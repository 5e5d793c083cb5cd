// cached-load: a client of any server with memcached's text protocol. It sets every key, then gets and sets them by
// Zipf's or the uniform distribution, as CacheLib's traces do: with popularity that moves on, and a set of what was
// missed.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "apps/random.h"
#include "apps/web/zipf.h"
#include "common/command_line.h"
#include "common/json.h"
#include "socket.h"

namespace {

using clock_type = std::chrono::steady_clock;

struct options {
  std::string address = "127.0.0.1";
  std::uint16_t port = 11211;
  unsigned connections = 2;
  unsigned pipelined = 16;
  std::uint64_t keys = 100'000;
  std::uint64_t value_bytes = 400;
  std::uint64_t operations = 500'000;
  double zipf = 1.0;
  std::uint64_t churn = 0;
  double gets = 0.874;
  std::uint64_t seed = 1;
  bool json = false;
};

std::string key_of(std::uint64_t number) {
  return fmt::format("key-{:012}", number);
}

// Of 1 to twice the mean of bytes, which follow from the key.
std::string value_of(std::uint64_t number, std::uint64_t mean) {
  const std::uint64_t mixed = apps::mix(number + 1);
  const std::string part = fmt::format("{:016x}", mixed);
  std::string value(1 + mixed % (2 * mean), '\0');
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = part[i % part.size()];
  return value;
}

std::string set_of(std::uint64_t number, std::uint64_t mean) {
  const std::string value = value_of(number, mean);
  return fmt::format("set {} 0 0 {}\r\n{}\r\n", key_of(number), value.size(), value);
}

// One connection, whose replies are read in the order of the requests. Throws std::runtime_error.
class client {
 public:
  client(const std::string& address, std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    if (inet_pton(AF_INET, address.c_str(), &to.sin_addr) != 1) {
      throw std::runtime_error(fmt::format("'{}' is no numeric IPv4 address", address));
    }
    if (connect(socket_.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
      throw std::runtime_error(
          fmt::format("cannot connect to {} port {}: {}; is a server running there?", address, port, strerror(errno)));
    }
    const int on = 1;
    setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }

  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw std::runtime_error(fmt::format("the connection broke: {}", strerror(errno)));
      text.remove_prefix(static_cast<std::size_t>(count));
    }
  }

  // Without its "\r\n"; good until the next call.
  std::string_view line() {
    std::size_t end = 0;
    while ((end = input_.find("\r\n", begin_)) == input_.npos) receive();
    const std::string_view found = std::string_view(input_).substr(begin_, end - begin_);
    begin_ = end + 2;
    return found;
  }
  std::string_view bytes(std::size_t count) {
    while (input_.size() - begin_ < count) receive();
    begin_ += count;
    return std::string_view(input_).substr(begin_ - count, count);
  }

  void expect(std::string_view wanted) {
    if (const std::string_view found = line(); found != wanted) {
      throw std::runtime_error(fmt::format("the server said '{}' and not '{}'", found.substr(0, 100), wanted));
    }
  }

 private:
  void receive() {
    input_.erase(0, std::exchange(begin_, 0));
    const std::size_t before = input_.size();
    input_.resize(before + 65536);
    const ssize_t count = recv(socket_.get(), input_.data() + before, input_.size() - before, 0);
    input_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0 || (count < 0 && errno != EINTR)) throw std::runtime_error("the server closed the connection");
  }

  cached::descriptor socket_;
  std::string input_;
  std::size_t begin_ = 0;
};

struct measurement {
  std::uint64_t gets = 0;
  std::uint64_t hits = 0;
  std::uint64_t sets = 0;
  std::vector<std::uint64_t> latencies_ns;  // of batches
};

// The part of the load that one connection makes.
class worker {
 public:
  worker(const options& chosen, unsigned number)
      : chosen_(chosen),
        number_(number),
        random_(apps::mix(chosen.seed) + number),
        ranks_(chosen.keys, chosen.zipf),
        server_(chosen.address, chosen.port) {}

  void fill() {
    for (std::uint64_t first = number_; first < chosen_.keys;) {
      std::string batch;
      unsigned sets = 0;
      for (; sets < chosen_.pipelined && first < chosen_.keys; ++sets, first += chosen_.connections) {
        batch += set_of(first, chosen_.value_bytes);
      }
      server_.send(batch);
      for (unsigned i = 0; i < sets; ++i) server_.expect("STORED");
    }
  }

  measurement run() {
    measurement counted;
    const std::uint64_t mine = chosen_.operations / chosen_.connections;
    for (std::uint64_t done = 0; done < mine; done += chosen_.pipelined) {
      const auto start = clock_type::now();
      run_batch(std::min<std::uint64_t>(chosen_.pipelined, mine - done), done, counted);
      counted.latencies_ns.push_back(static_cast<std::uint64_t>((clock_type::now() - start).count()));
    }
    return counted;
  }

 private:
  struct request {
    std::uint64_t key;
    bool is_get;
  };

  // Ranks are scattered over the keys by a prime, and move on to others with each churn.
  std::uint64_t next_key(std::uint64_t done) {
    const std::uint64_t epoch = chosen_.churn == 0 ? 0 : done * chosen_.connections / chosen_.churn;
    return (ranks_.draw(random_) * 4'294'967'291 + epoch * 7'919) % chosen_.keys;
  }

  void run_batch(std::uint64_t count, std::uint64_t done, measurement& counted) {
    std::vector<request> requests;
    std::string text;
    for (std::uint64_t i = 0; i < count; ++i) {
      const request one = {next_key(done + i), random_.next_unit() < chosen_.gets};
      text += one.is_get ? fmt::format("get {}\r\n", key_of(one.key)) : set_of(one.key, chosen_.value_bytes);
      requests.push_back(one);
    }
    server_.send(text);
    std::string missed;
    unsigned missing = 0;
    for (const request& one : requests) {
      counted.sets += !one.is_get;
      counted.gets += one.is_get;
      if (!one.is_get) {
        server_.expect("STORED");
      } else if (take_value(one.key)) {
        ++counted.hits;
      } else {
        missed += set_of(one.key, chosen_.value_bytes);
        ++missing;
      }
    }
    server_.send(missed);
    for (unsigned i = 0; i < missing; ++i) server_.expect("STORED");
    counted.sets += missing;
  }

  // Whether it was there. Throws when it is another value than was set.
  bool take_value(std::uint64_t key) {
    const std::string wanted = value_of(key, chosen_.value_bytes);
    const std::string_view head = server_.line();
    if (head == "END") return false;
    const std::string expected = fmt::format("VALUE {} 0 {}", key_of(key), wanted.size());
    if (head != expected) throw std::runtime_error(fmt::format("the server said '{}' and not '{}'", head, expected));
    if (server_.bytes(wanted.size()) != wanted)
      throw std::runtime_error(key_of(key) + " has another value than was set");
    server_.expect("");
    server_.expect("END");
    return true;
  }

  const options& chosen_;
  unsigned number_;
  apps::random_words random_;
  web::zipf ranks_;
  client server_;
};

double seconds_since(clock_type::time_point start) {
  return std::chrono::duration<double>(clock_type::now() - start).count();
}

void run(options chosen) {
  // The replies to a batch must fit where a server keeps them, which waits for them to be read meanwhile.
  chosen.pipelined = std::min(chosen.pipelined, static_cast<unsigned>((std::uint64_t{128} << 10) / chosen.value_bytes));
  std::vector<std::unique_ptr<worker>> workers;
  for (unsigned i = 0; i < chosen.connections; ++i) workers.push_back(std::make_unique<worker>(chosen, i));
  const auto on_all = [&](auto work) {
    std::vector<std::future<decltype(work(*workers[0]))>> running;
    for (auto& one : workers) running.push_back(std::async(std::launch::async, work, std::ref(*one)));
    return running;
  };
  auto start = clock_type::now();
  for (auto& one : on_all([](worker& self) { self.fill(); })) one.get();
  const double fill_s = seconds_since(start);
  start = clock_type::now();
  measurement all;
  for (auto& one : on_all([](worker& self) { return self.run(); })) {
    const measurement counted = one.get();
    all.gets += counted.gets;
    all.hits += counted.hits;
    all.sets += counted.sets;
    all.latencies_ns.insert(all.latencies_ns.end(), counted.latencies_ns.begin(), counted.latencies_ns.end());
  }
  const double seconds = seconds_since(start);
  std::ranges::sort(all.latencies_ns);
  const auto percentile_us = [&](std::size_t percent) {
    return static_cast<double>(all.latencies_ns[(all.latencies_ns.size() - 1) * percent / 100]) / 1000;
  };
  const double rate = static_cast<double>(all.gets + all.sets) / seconds;
  const double hit_share = all.gets == 0 ? 0 : static_cast<double>(all.hits) / static_cast<double>(all.gets);
  if (!chosen.json) {
    fmt::print("{:.0f} operations a second, {:.2f}% of {} gets hit; a batch of {}: p50 {:.0f} us, p99 {:.0f} us\n",
               rate, 100 * hit_share, all.gets, chosen.pipelined, percentile_us(50), percentile_us(99));
    return;
  }
  const evaluation::json report = {{"app", "cached-load"},
                                   {"seconds", seconds},
                                   {"fill_s", fill_s},
                                   {"throughput", rate},
                                   {"gets", all.gets},
                                   {"sets", all.sets},
                                   {"hits", all.hits},
                                   {"hit_share", hit_share},
                                   {"batch_us", {{"p50", percentile_us(50)}, {"p99", percentile_us(99)}}}};
  fmt::print("{}\n", report.dump());
}

void declare(evaluation::command_line& line, options& into) {
  line.add_text("--address", into.address, "of the server, numeric");
  line.add_number("--port", into.port, "of the server", 1, 65535);
  line.add_number("--connections", into.connections, "each with a thread", 1, 1024);
  line.add_number("--pipelined", into.pipelined, "requests that are sent before their replies are read", 1, 64);
  line.add_number("--keys", into.keys, "that are set at the beginning", 1, 1u << 31);
  line.add_number("--value-bytes", into.value_bytes, "mean size of a value", 1, 1u << 17);
  line.add_number("--operations", into.operations, "gets and sets", 1, 1u << 31);
  line.add_number("--zipf", into.zipf, "exponent of the keys' distribution; 0: uniform", 0, 10);
  line.add_number("--churn", into.churn, "after so many operations other keys are popular; 0: never", 0,
                  std::numeric_limits<std::uint64_t>::max());
  line.add_number("--gets", into.gets, "share of gets; the others are sets", 0, 1);
  line.add_seed(into.seed, "of the operations");
  line.add_flag("--json", into.json, "one JSON object");
}

}  // namespace

int main(int count, char** arguments) try {
  options chosen;
  evaluation::command_line line(
      "A load of gets and sets on a server with memcached's text protocol. Every value is verified.");
  declare(line, chosen);
  if (const auto status = line.parse(count, arguments)) return *status;
  run(chosen);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "cached-load: {}\n", error.what());
  return 1;
}
