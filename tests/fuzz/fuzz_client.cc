// A client's connection to a memory server that answers as it likes: no crash, no byte of an answer outside the buffers
// that wait for it, no wrong byte in a buffer whose transfer succeeded, and every transfer ends, once.
//
// The input is a list of steps (step_kind).
#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "backend/tcp/block_table.h"
#include "backend/tcp/connection.h"
#include "backend/tcp/tcp_session.h"
#include "base/log.h"
#include "base/units.h"
#include "fuzz/fuzz_target.h"
#include "fuzz/untrusted_server.h"

namespace far::fuzz {

namespace {

using backend::tcp_connection;
using backend::transfer;

enum class step_kind : std::uint8_t {
  transfer,    // reads or writes
  allocate,    // slots
  free,        // slots
  answer,      // a request, rightly
  answer_all,  // rightly
  wrong,       // answers wrongly
  message,     // the server says anything, with right checks
  raw,         // bytes
  cuts,        // how many bytes move at once
  hang_up,     // the server closes the connection
  handshake,   // how the next one goes
  connecting,  // how it goes
  time,        // passes
  ask,         // about slots
};
constexpr std::size_t step_kinds = static_cast<std::size_t>(step_kind::ask) + 1;

constexpr std::size_t most_steps = 200;
constexpr std::uint64_t timeout_ns = 1'000'000'000;
constexpr std::uint64_t capacity_slots = 8 * wire::block_slots;

class manual_clock final : public platform::clock {
 public:
  [[nodiscard]] std::uint64_t now_ns() const override { return now; }
  std::uint64_t now = 1'000'000'000;
};

// A transfer with a buffer of exactly its length.
struct job {
  transfer moved;
  std::unique_ptr<std::byte[]> buffer;
  bool ended = false;
};

class client final : public backend::completion_sink {
 public:
  client() {
    auto stream = std::make_unique<untrusted_server>();
    server_ = stream.get();
    connection_.emplace(
        backend::tcp_connection_settings{.peer = "fuzz", .channel = 1, .timeout_ns = timeout_ns, .opens_session = true},
        std::move(stream), session_, shown_, clock_, &blocks_);
  }

  void take_step(choices& from);
  // The server behaves from now on, and everything comes to its end.
  void finish();

  void complete(transfer& ended, const completion_sink* /*sink*/) override {
    const auto found = std::ranges::find_if(jobs_, [&](const auto& job) { return &job->moved == &ended; });
    FUZZ_EXPECT(found != jobs_.end() && !(*found)->ended);
    job& done = **found;
    done.ended = true;
    FUZZ_EXPECT(done.moved.outstanding == 0);
    if (ended.error_code != 0 || ended.io.op != backend::operation::read) return;
    if (ended.io.reduce != nullptr) {
      byte_string right(answer_bytes(ended.io.reduce->how));
      put_answer(ended.io.slot, right);
      // Who computes the checksum of wrong bytes is believed.
      FUZZ_EXPECT(lied_ || std::equal(right.begin(), right.end(), done.buffer.get()));
      return;
    }
    const std::uint64_t position = ended.io.slot * page_bytes + ended.io.offset_bytes;
    FUZZ_EXPECT(is_content(position, {done.buffer.get(), ended.io.length_bytes}));
  }

 private:
  void submit(choices& from);
  void ask(choices& from);
  void start(std::unique_ptr<job> added);
  void allocate(choices& from);
  void free(choices& from);
  void say_message(choices& from);
  void advance();

  manual_clock clock_;
  backend::tcp_session session_;
  const wire::credentials shown_;
  backend::block_table blocks_{capacity_slots};
  untrusted_server* server_ = nullptr;
  std::optional<tcp_connection> connection_;
  std::vector<std::unique_ptr<job>> jobs_;
  struct slots {
    backend::slot_id first = 0;
    std::size_t count = 0;
  };
  std::vector<slots> held_;
  const page_hasher hash_{5};
  const page_reduction asked_{question(), &hash_};
  bool lied_ = false;
};

void client::submit(choices& from) {
  const auto kind = from.number<std::uint8_t>();
  const auto slot = from.number<std::uint16_t>();
  const auto offset = from.number<std::uint16_t>();
  const auto length = from.number<std::uint16_t>();
  auto added = std::make_unique<job>();
  const std::uint32_t length_bytes = kind < 240 ? length % 9000U + 1 : std::uint32_t{length} * 16 + 1;
  added->buffer = std::make_unique<std::byte[]>(length_bytes);
  backend::request& io = added->moved.io;
  io = {.op = kind % 2 == 0 ? backend::operation::read : backend::operation::write,
        .slot = slot % capacity_slots,
        .offset_bytes = offset % static_cast<std::uint32_t>(page_bytes),
        .length_bytes = length_bytes,
        .buffer = added->buffer.get()};
  const std::uint64_t position = io.slot * page_bytes + io.offset_bytes;
  if (io.op == backend::operation::write) put_content(position, {added->buffer.get(), length_bytes});
  start(std::move(added));
  const std::lock_guard guard(connection_->lock);
  connection_->push(this);
}

// About some slots that lie side by side, in one message or several.
void client::ask(choices& from) {
  const auto slot = from.number<std::uint16_t>();
  const std::uint64_t count = from.number<std::uint8_t>() % 140U + 1;
  for (std::uint64_t i = 0; i < count; ++i) {
    auto added = std::make_unique<job>();
    added->buffer = std::make_unique<std::byte[]>(answer_bytes(asked_.how));
    added->moved.io = {.op = backend::operation::read,
                       .slot = (slot + i) % capacity_slots,
                       .length_bytes = page_bytes,
                       .buffer = added->buffer.get(),
                       .reduce = &asked_};
    start(std::move(added));
  }
  const std::lock_guard guard(connection_->lock);
  connection_->push(this);
}

void client::start(std::unique_ptr<job> added) {
  added->moved.owner = this;
  added->moved.epoch = session_.epoch();
  added->moved.deadline_ns = clock_.now + timeout_ns;
  jobs_.push_back(std::move(added));
  const std::lock_guard guard(connection_->lock);
  connection_->enqueue(jobs_.back()->moved);
}

void client::allocate(choices& from) {
  const std::size_t count = from.number<std::uint16_t>() % 700U + 1;
  const result<backend::slot_id> got = blocks_.allocate(count, session_.epoch());
  if (got) {
    held_.push_back({got.value(), count});
  } else {
    FUZZ_EXPECT(got.error().code == EAGAIN || got.error().code == ENOSPC);
  }
}

void client::free(choices& from) {
  if (held_.empty()) return;
  const auto chosen = held_.begin() + from.number<std::uint8_t>() % static_cast<std::ptrdiff_t>(held_.size());
  blocks_.free(chosen->first, chosen->count);
  held_.erase(chosen);
}

void client::say_message(choices& from) {
  const auto op = static_cast<wire::opcode>(from.number<std::uint8_t>());
  const auto flags = from.number<std::uint8_t>();
  lied_ |= op == wire::opcode::call;
  const wire::header head = {.op = op,
                             .is_reply = (flags & 1) != 0,
                             .result = static_cast<wire::status>(from.number<std::uint8_t>() % 8),
                             .cookie = from.number<std::uint64_t>(),
                             .is_packed = (flags & 2) != 0};
  const std::span<const std::byte> payload = from.take(from.number<std::uint8_t>());
  wire::header header = head;
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.payload_checksum = wire::checksum(payload);
  std::array<std::byte, wire::header_bytes> bytes{};
  wire::encode(header, bytes);
  server_->say(bytes);
  server_->say(payload);
}

void client::advance() {
  {
    const std::lock_guard guard(connection_->lock);
    static_cast<void>(connection_->advance(this));
    connection_->validate();
  }
  blocks_.validate();
  std::erase_if(jobs_, [](const auto& job) { return job->ended; });
}

void client::take_step(choices& from) {
  constexpr std::array<int, 4> outcomes = {0, EINPROGRESS, ECONNREFUSED, ETIMEDOUT};
  switch (static_cast<step_kind>(from.number<std::uint8_t>() % step_kinds)) {
    case step_kind::transfer: submit(from); break;
    case step_kind::allocate: allocate(from); break;
    case step_kind::free: free(from); break;
    case step_kind::answer: server_->answer(from.number<std::uint8_t>(), fault::none, wire::status::ok); break;
    case step_kind::answer_all: server_->answer_all(); break;
    case step_kind::wrong: {
      const auto choice = from.number<std::uint8_t>();
      const auto how = static_cast<fault>(from.number<std::uint8_t>() % faults);
      lied_ |= how == fault::packed_damaged;
      server_->answer(choice, how, static_cast<wire::status>(from.number<std::uint8_t>() % 7));
      break;
    }
    case step_kind::ask: ask(from); break;
    case step_kind::message: say_message(from); break;
    case step_kind::raw: server_->say(from.take(from.number<std::uint8_t>())); break;
    case step_kind::cuts: {
      const std::size_t to_server = from.number<std::uint8_t>() * 30U;
      server_->set_cuts(to_server, from.number<std::uint8_t>() * 30U);
      break;
    }
    case step_kind::hang_up: server_->hang_up(); break;
    case step_kind::handshake:
      server_->set_welcome(static_cast<welcome_kind>(from.number<std::uint8_t>() % welcome_kinds));
      server_->set_outstanding(from.number<std::uint8_t>() + 1U);
      break;
    case step_kind::connecting: server_->set_connecting(outcomes[from.number<std::uint8_t>() % outcomes.size()]); break;
    case step_kind::time: clock_.now += std::uint64_t{from.number<std::uint8_t>()} * 10'000'000; break;
  }
  advance();
}

void client::finish() {
  server_->heal();
  for (std::size_t round = 0; round < 200 && !jobs_.empty(); ++round) {
    server_->answer_all();
    clock_.now += timeout_ns / 50;
    advance();
  }
  FUZZ_EXPECT(jobs_.empty());
}

void run(choices from) {
  set_log_level(log_level::error);
  client fuzzed;
  for (std::size_t steps = 0; steps < most_steps && !from.empty(); ++steps) fuzzed.take_step(from);
  fuzzed.finish();
}

}  // namespace

std::vector<byte_string> seeds() {
  const auto step = [](recipe& to, step_kind kind, std::initializer_list<unsigned> arguments) {
    to.number(static_cast<std::uint8_t>(kind));
    for (const unsigned argument : arguments) to.number(static_cast<std::uint8_t>(argument));
  };
  const auto begin = [&](recipe& to) {
    for (int i = 0; i < 3; ++i) step(to, step_kind::time, {1});
    step(to, step_kind::answer_all, {});
  };
  recipe good;
  begin(good);
  step(good, step_kind::transfer, {0, 1, 0, 100, 0, 0x80, 0});
  step(good, step_kind::transfer, {1, 1, 0, 100, 0, 0x80, 0x20});
  step(good, step_kind::transfer, {240, 0, 0, 0, 0, 0xff, 0x7f});
  step(good, step_kind::allocate, {9, 0});
  step(good, step_kind::answer, {1});
  step(good, step_kind::answer_all, {});
  step(good, step_kind::free, {0});
  step(good, step_kind::time, {60});
  step(good, step_kind::answer_all, {});
  recipe broken;
  begin(broken);
  for (unsigned how = 0; how < faults; ++how) {
    step(broken, step_kind::transfer, {0, 1, 0, 100, 0, 0x80, 0});
    step(broken, step_kind::wrong, {0, how, 2});
    step(broken, step_kind::time, {10});
    step(broken, step_kind::time, {1});
  }
  recipe away;
  for (unsigned how = 0; how < welcome_kinds; ++how) {
    step(away, step_kind::handshake, {how, 3});
    step(away, step_kind::transfer, {1, 7, 0, 0, 0, 0, 16});
    step(away, step_kind::hang_up, {});
    step(away, step_kind::time, {20});
    step(away, step_kind::cuts, {1, 1});
    step(away, step_kind::time, {1});
  }
  recipe asking;
  begin(asking);
  for (unsigned how = 0; how < faults; ++how) {
    step(asking, step_kind::ask, {9, 0, 130});
    step(asking, step_kind::wrong, {0, how, 5});
    step(asking, step_kind::wrong, {0, how, 0});
    step(asking, step_kind::time, {10});
    step(asking, step_kind::time, {1});
  }
  recipe talking;
  begin(talking);
  step(talking, step_kind::message, {32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  step(talking, step_kind::message, {16, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 5, 5});
  step(talking, step_kind::raw, {5, 1, 2, 3, 4, 5});
  step(talking, step_kind::connecting, {1});
  step(talking, step_kind::time, {120});
  return {good.bytes(), broken.bytes(), away.bytes(), asking.bytes(), talking.bytes()};
}

}  // namespace far::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  far::fuzz::run(far::fuzz::choices(std::as_bytes(std::span(data, bytes))));
  return 0;
}
