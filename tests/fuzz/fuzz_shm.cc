// The rings in shared memory, against the other side. A client writes anything at all into them: another session's
// bytes stay, and the books of the store are right. A server does: its client's transfers end, and the client lives.
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "backend/shm/shm_backend.h"
#include "base/log.h"
#include "fuzz/fuzz_target.h"
#include "server/shm_request_handler.h"
#include "tests/support/shm_untrusted_server.h"

namespace far::fuzz {

namespace {

using wire::ring_operation;
using wire::ring_reply;
using wire::ring_request;

constexpr std::size_t most_steps = 60;
constexpr std::uint64_t second_ns = 1'000'000'000;

// Any of the words that both sides move.
wire::shared_word& some_word(wire::ring_file& file, choices& from) {
  wire::shared_word* const all[] = {&file.requests_put, &file.requests_taken, &file.server_dozing,
                                    &file.replies_put,  &file.replies_taken,  &file.client_dozing};
  return *all[from.number<std::uint8_t>() % std::size(all)];
}

// Near the value that is there, or anything.
void change_word(wire::ring_file& file, choices& from) {
  wire::shared_word& word = some_word(file, from);
  const auto by = from.number<std::int8_t>();
  if (by == -128) {
    word.value.store(from.number<std::uint32_t>());
  } else {
    word.value.fetch_add(static_cast<std::uint32_t>(static_cast<std::int32_t>(by)));
  }
}

wire::ring_entry raw_entry(choices& from) {
  wire::ring_entry entry{};
  for (auto& word : entry) word = from.number<std::uint64_t>();
  return entry;
}

void store_entry(wire::shared_entry& into, const wire::ring_entry& entry) {
  for (std::size_t i = 0; i < entry.size(); ++i) into.words[i].store(entry[i]);
}

// A session of the store with memory of its own, and its rings as the client has them.
class session_under_attack {
 public:
  explicit session_under_attack(server::store& lent) {
    auto source = std::make_unique<server::shm_memory>();
    memory_ = source.get();
    FUZZ_EXPECT(memory_->create(4).ok() && rings_.create().ok());
    auto opened = lent.open("default", 0, std::move(source));
    FUZZ_EXPECT(opened.ok() && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, sockets_.data()) == 0);
    mine_ = std::move(opened).value();
    void* const mapped =
        mmap(nullptr, wire::ring_file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, rings_.descriptor(), 0);
    FUZZ_EXPECT(mapped != MAP_FAILED);
    file_ = static_cast<wire::ring_file*>(mapped);
    handler_.emplace(counters_, rings_, *mine_.to, *memory_, sockets_[0], nullptr);
  }
  ~session_under_attack() {
    munmap(file_, wire::ring_file_bytes);
    for (const int socket : sockets_) close(socket);
  }
  session_under_attack(const session_under_attack&) = delete;
  session_under_attack& operator=(const session_under_attack&) = delete;

  void take_step(choices& from) {
    const auto kind = from.number<std::uint8_t>();
    const std::uint32_t at = file_->requests_put.value.load();
    if (kind < 140) {
      ring_request asked;
      asked.op = static_cast<ring_operation>(from.number<std::uint8_t>() % 8 + 16);
      asked.first = from.number<std::uint8_t>() % 8;
      if (asked.op == ring_operation::read || asked.op == ring_operation::write) asked.first *= 100;
      asked.count = from.number<std::uint8_t>() % 6;
      asked.fragment = from.number<std::uint8_t>() % (wire::ring_length + 2);
      asked.offset_bytes = from.number<std::uint16_t>() % 5000U;
      asked.length_bytes = from.number<std::uint16_t>() * 2U;
      store_entry(file_->requests[at % wire::ring_length], std::bit_cast<wire::ring_entry>(asked));
      file_->requests_put.value.store(at + 1);
    } else if (kind < 180) {
      store_entry(file_->requests[from.number<std::uint8_t>() % wire::ring_length], raw_entry(from));
      file_->requests_put.value.store(at + 1);
    } else if (kind < 210) {
      change_word(*file_, from);
    } else {
      const std::span<const std::byte> raw = from.take(from.number<std::uint8_t>());
      std::ranges::copy(raw, file_->area + from.number<std::uint16_t>());
    }
    work();
  }

  void work() {
    for (unsigned turns = 0; turns < 8 && handler_->reason() == server::close_reason::none; ++turns) {
      if (!handler_->work(++now_ns_)) break;
    }
    std::array<char, 64> bells{};
    while (recv(sockets_[1], bells.data(), bells.size(), MSG_DONTWAIT) > 0) {
    }
  }

  [[nodiscard]] bool is_over() const { return handler_->reason() != server::close_reason::none; }

  void leave(server::store& lent) {
    handler_->abandon();
    lent.end(*mine_.to);
    lent.leave(mine_, now_ns_);
  }

 private:
  server::loop_counters counters_;
  server::shm_memory* memory_ = nullptr;
  server::shm_rings rings_;
  std::array<int, 2> sockets_{-1, -1};
  server::attachment mine_;
  wire::ring_file* file_ = nullptr;
  std::optional<server::shm_request_handler> handler_;
  std::uint64_t now_ns_ = 1;
};

std::unique_ptr<server::store> make_store() {
  auto created = server::store::create(
      {.memory_bytes = 8 * server::block_bytes, .grace_ns = second_ns, .quota_bytes = {}, .make_source = [] {
         return std::make_unique<server::shm_memory>();
       }});
  FUZZ_EXPECT(created.ok());
  return std::move(created).value();
}

void attack_server(choices& from) {
  const std::unique_ptr<server::store> lent = make_store();
  auto memory = std::make_unique<server::shm_memory>();
  FUZZ_EXPECT(memory->create(2).ok());
  server::attachment bystander = std::move(lent->open("bystander", 0, std::move(memory))).value();
  FUZZ_EXPECT(bystander.to->allocate({0, 1}) == wire::status::ok);
  std::memset(bystander.to->address_of(3), 0x77, page_bytes);
  {
    session_under_attack attacked(*lent);
    for (std::size_t steps = 0; steps < most_steps && !from.empty() && !attacked.is_over(); ++steps) {
      attacked.take_step(from);
      static_cast<void>(lent->reclaim());
    }
    attacked.leave(*lent);
  }
  lent->validate();
  while (lent->reclaim() > 0) {
  }
  FUZZ_EXPECT(lent->report().held_blocks == 1);
  const std::byte* const kept = bystander.to->address_of(3);
  FUZZ_EXPECT(std::all_of(kept, kept + page_bytes, [](std::byte byte) { return byte == std::byte{0x77}; }));
  lent->leave(bystander, 1);
}

// A client whose server copies for it, until it does not.
void attack_client(choices& from) {
  set_log_level(log_level::error);
  server::shm_untrusted_server server(1);
  backend::shm_options chosen;
  chosen.name = server.path();
  chosen.server_copies = true;
  std::unique_ptr<backend::backend> client;
  std::unique_ptr<backend::channel> channel;
  auto& control = server.welcome([&] { client = std::move(backend::shm_backend::create(chosen)).value(); });
  auto& copies = server.welcome([&] { channel = std::move(client->open_channel(4)).value(); });
  const backend::slot_id slot = client->allocate(4).value();
  std::vector<std::byte> page(page_bytes);
  std::size_t in_flight = 0;
  std::array<backend::completion, 4> done;
  for (std::size_t steps = 0; steps < most_steps && !from.empty(); ++steps) {
    const auto kind = from.number<std::uint8_t>();
    auto& peer = (kind & 1) != 0 ? control : copies;
    if (kind < 60) {
      const backend::request one{.op = kind < 30 ? backend::operation::read : backend::operation::write,
                                 .slot = slot + kind % 4,
                                 .buffer = page.data()};
      in_flight += channel->submit({&one, 1});
    } else if (kind < 160) {
      const auto cookie = from.number<std::uint8_t>();
      peer.reply({.cookie = cookie < 250 ? cookie % 20U : from.number<std::uint64_t>(),
                  .status = static_cast<std::uint8_t>(from.number<std::uint8_t>() % 3),
                  .values = {from.number<std::uint8_t>()}});
    } else if (kind < 200) {
      change_word(*peer.file, from);
    } else if (kind < 220) {
      store_entry(peer.file->replies[from.number<std::uint8_t>() % wire::ring_length], raw_entry(from));
    } else {
      static_cast<void>(client->tend());
    }
    in_flight -= channel->poll(done);
  }
  // The server goes; what is under way ends all the same.
  shutdown(copies.socket, SHUT_RDWR);
  for (unsigned polls = 0; in_flight > 0; ++polls) {
    FUZZ_EXPECT(polls < 10'000'000);
    in_flight -= channel->poll(done);
  }
  FUZZ_EXPECT(client->report().used_slots == 4);
}

}  // namespace

std::vector<byte_string> seeds() {
  return {
      seed_of({0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 1, 10, 0, 200, 0}),  // a block, and bytes into it
      seed_of({0, 0, 3, 0, 1, 0, 0, 0, 0, 0}),                                // one goes back that was not there
      seed_of({0, 0, 5, 0, 0, 0, 0, 0, 20, 0}),                               // a call
      seed_of({0, 190, 0, 100, 190, 3, 255, 150, 0, 230, 2, 9, 9, 1, 0}),     // other positions, and anything else
      seed_of({1, 60, 0, 0, 1, 0, 61, 0, 0, 1, 221}),                         // a client is answered
      seed_of({1, 0, 61, 18, 0, 9, 221, 61, 19, 1, 0, 221}),                  // what was not asked
      seed_of({1, 2, 160, 3, 100, 161, 0, 128, 1, 2, 3, 4, 221}),             // other positions
  };
}

}  // namespace far::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  far::fuzz::choices from(std::as_bytes(std::span(data, bytes)));
  if ((from.number<std::uint8_t>() & 1) == 0) {
    far::fuzz::attack_server(from);
  } else {
    far::fuzz::attack_client(from);
  }
  return 0;
}
