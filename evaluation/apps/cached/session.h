// One client's conversation, in memcached's text protocol: bytes in, bytes out. Knows no sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"
#include "store.h"

namespace cached {

// The facts that `stats` tells beyond the store's counters.
struct server_facts {
  unsigned threads = 0;
  unsigned connection_limit = 0;
  std::atomic<std::uint64_t> connections{0};
  std::atomic<std::uint64_t> all_connections{0};
  std::atomic<std::uint64_t> rejected_connections{0};
};

// Holds one line of at most 1 MiB, one value, and replies of about 1.25 MiB at most, whatever the client sends or does
// not read.
class session {
 public:
  session(store& items, server_facts& facts) : items_(items), facts_(facts) {}

  // Where the next bytes from the client go; requires wants_input(). Part of a value goes right into its item.
  [[nodiscard]] std::span<char> room();
  // So many bytes have come there.
  void received(std::size_t count);

  // Answers what has come, until more is needed or the client has too much to read.
  void process();

  [[nodiscard]] std::string_view output() const { return std::string_view(output_).substr(sent_); }
  void sent(std::size_t count);

  // process() has stopped before the end of its input: call it again when output() is sent.
  [[nodiscard]] bool is_held_up() const { return held_up_; }
  [[nodiscard]] bool wants_input() const { return !held_up_ && !closing_; }
  // To be closed when output() is sent.
  [[nodiscard]] bool is_closing() const { return closing_; }

 private:
  enum class state { command, value, swallow, keys };
  static constexpr std::size_t first_input_bytes = std::size_t{16} << 10;
  static constexpr std::size_t longest_line = std::size_t{1} << 20;
  static constexpr std::size_t longest_line_but_get = 2048;
  static constexpr std::size_t output_enough = std::size_t{256} << 10;

  [[nodiscard]] std::size_t waiting() const { return end_ - begin_; }
  bool step();
  bool take_line();
  bool take_value();
  bool take_swallowed();
  void check_unfinished_line();
  void execute(char* line);
  void execute_words(const command_line& words);
  void reply(std::string_view text);
  void reply_always(std::string_view text);
  void stop() { closing_ = true; }

  void begin_get(bool with_cas, char* line);
  bool take_key();
  void begin_store(const command_line& words, store_mode mode);
  void finish_store();
  void execute_delete(const command_line& words);
  void execute_count(const command_line& words, bool up);
  void execute_touch(const command_line& words);
  void execute_flush(const command_line& words);
  void execute_verbosity(const command_line& words);
  void execute_stats(const command_line& words);
  void write_general_stats();
  void write_settings();
  template <typename Value>
  void write_stat(std::string_view name, const Value& value);

  store& items_;
  server_facts& facts_;
  state state_ = state::command;
  bool noreply_ = false;
  bool held_up_ = false;
  bool closing_ = false;

  std::vector<char> input_;
  std::size_t begin_ = 0;  // the first byte that is not used yet
  std::size_t end_ = 0;
  std::size_t scanned_ = 0;  // of that, without the end of a line

  item_ptr storing_;
  std::size_t filled_ = 0;  // bytes of its value and "\r\n"
  store_mode mode_ = store_mode::set;
  std::uint64_t cas_ = 0;
  std::size_t swallow_ = 0;  // bytes to ignore

  const char* keys_ = nullptr;  // of a get, in input_, those not yet looked up
  bool with_cas_ = false;

  std::string output_;
  std::size_t sent_ = 0;
};

inline constexpr std::string_view version_text = "1.6.0-farheap";
inline constexpr std::string_view bad_format = "CLIENT_ERROR bad command line format";

}  // namespace cached
