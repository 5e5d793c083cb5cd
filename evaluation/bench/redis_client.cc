#include <fmt/format.h>
#include <string.h>

#include <deque>
#include <string>
#include <vector>

#include "base/check.h"
#include "transport_client.h"

#ifdef FAR_BENCH_HIREDIS
#include <hiredis/hiredis.h>
#endif

namespace far::bench {

#ifdef FAR_BENCH_HIREDIS

namespace {

class redis_client final : public transport_client {
 public:
  redis_client(redisContext* context, const transport_shape& shape) : context_(context), value_(shape.bytes, 'v') {}
  ~redis_client() override { redisFree(context_); }

  void start(bool write, std::span<const std::uint32_t> items, std::span<const std::uint32_t> tags) override {
    for (std::size_t i = 0; i < items.size(); ++i) {
      append(write, items[i]);
      outstanding_.push_back({items[i], tags[i], write});
    }
    int all_sent = 0;
    while (all_sent == 0) {
      FAR_CHECK(redisBufferWrite(context_, &all_sent) == REDIS_OK, "Redis takes commands");
    }
  }

  // Blocks for the first reply, and takes what has come with it.
  [[nodiscard]] std::size_t finish(std::span<std::uint32_t> tags) override {
    std::size_t count = 0;
    while (count < tags.size() && !outstanding_.empty()) {
      void* reply = nullptr;
      if (count == 0) {
        FAR_CHECK(redisGetReply(context_, &reply) == REDIS_OK, "Redis answers");
      } else {
        FAR_CHECK(redisGetReplyFromReader(context_, &reply) == REDIS_OK, "Redis answers");
        if (reply == nullptr) break;
      }
      check(static_cast<redisReply*>(reply), outstanding_.front());
      freeReplyObject(reply);
      tags[count++] = outstanding_.front().tag;
      outstanding_.pop_front();
    }
    return count;
  }

 private:
  struct command {
    std::uint32_t item = 0;
    std::uint32_t tag = 0;
    bool write = false;
  };

  void append(bool write, std::uint32_t item) {
    const std::string key = fmt::format("item:{:08}", item);
    const std::uint64_t mark = transport_mark(item);
    if (write) memcpy(value_.data(), &mark, sizeof mark);
    const char* words[] = {write ? "SET" : "GET", key.data(), value_.data()};
    const std::size_t lengths[] = {3, key.size(), value_.size()};
    redisAppendCommandArgv(context_, write ? 3 : 2, words, lengths);
  }

  void check(const redisReply* reply, const command& asked) const {
    if (asked.write) return FAR_CHECK(reply->type == REDIS_REPLY_STATUS, "Redis stores a value");
    FAR_CHECK(reply->type == REDIS_REPLY_STRING && reply->len == value_.size(), "Redis returns a value");
    std::uint64_t mark = 0;
    memcpy(&mark, reply->str, sizeof mark);
    FAR_CHECK(mark == transport_mark(asked.item), "Redis returns the bytes that were written");
  }

  redisContext* context_;
  std::string value_;
  std::deque<command> outstanding_;
};

}  // namespace

result<std::unique_ptr<transport_client>> open_redis_client(int port, const transport_shape& shape) {
  const timeval deadline{20, 0};
  redisContext* const context = redisConnectWithTimeout("127.0.0.1", port, deadline);
  if (context == nullptr || context->err != 0) {
    const std::string why = context == nullptr ? "out of memory" : context->errstr;
    if (context != nullptr) redisFree(context);
    return error{fmt::format("cannot connect to Redis: {}", why), ECONNREFUSED};
  }
  redisSetTimeout(context, deadline);
  auto client = std::make_unique<redis_client>(context, shape);
  for (std::uint32_t item = 0; item < shape.items; ++item) {
    const std::uint32_t tag = 0;
    client->start(true, {&item, 1}, {&tag, 1});
    std::uint32_t done = 0;
    while (client->finish({&done, 1}) == 0) continue;
  }
  return std::unique_ptr<transport_client>(std::move(client));
}

#else

result<std::unique_ptr<transport_client>> open_redis_client(int /*port*/, const transport_shape& /*shape*/) {
  return error{"this build has no hiredis; install libhiredis-dev and configure again", ENOSYS};
}

#endif

}  // namespace far::bench
