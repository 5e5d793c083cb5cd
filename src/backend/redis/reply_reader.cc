#include "backend/redis/reply_reader.h"

#include <hiredis/read.h>

#include "base/check.h"
#include "base/units.h"

namespace far::backend {
namespace {

// None that is asked for is as long: the longest tells of all nodes of a cluster. Whoever announces more would have us
// keep it until this machine has no memory left.
constexpr std::size_t longest_reply_bytes = 16 * mib;

// hiredis wants an object for each reply, and is given this one: sinks take replies as they are parsed.
char taken_object = 0;

reply_sink& sink_of(const redisReadTask* task) {
  return *static_cast<reply_sink*>(task->privdata);
}

void* take_text(const redisReadTask* task, char* text, std::size_t bytes) {
  redis_reply reply{.is = redis_reply::kind::text, .text = {text, bytes}};
  if (task->type == REDIS_REPLY_STATUS) reply.is = redis_reply::kind::status;
  if (task->type == REDIS_REPLY_ERROR) reply.is = redis_reply::kind::failure;
  sink_of(task).take(reply);
  return &taken_object;
}

void* take_number(const redisReadTask* task, long long number) {
  sink_of(task).take({.is = redis_reply::kind::number, .text = {}, .number = number});
  return &taken_object;
}

void* take_nothing(const redisReadTask* task) {
  sink_of(task).take({});
  return &taken_object;
}

// The parser reports this as a lack of memory; it is the end of the connection either way.
template <typename Count>
void* refuse_array(const redisReadTask*, Count) {
  return nullptr;
}

void free_object(void*) {}

redisReplyObjectFunctions functions() {
  redisReplyObjectFunctions all{};
  all.createString = take_text;
  all.createArray = refuse_array;
  all.createInteger = take_number;
  all.createNil = take_nothing;
  all.freeObject = free_object;
  return all;
}

redisReader* make_reader() {
  static redisReplyObjectFunctions all = functions();
  redisReader* const created = redisReaderCreateWithFunctions(&all);
  FAR_CHECK(created != nullptr, "there is memory for a parser of replies");
  created->maxbuf = 0;  // the buffer is kept
  return created;
}

}  // namespace

reply_reader::reply_reader() : reader_(make_reader()) {}

reply_reader::~reply_reader() {
  redisReaderFree(reader_);
}

bool reply_reader::feed(std::span<const std::byte> bytes) {
  if (reader_->len - reader_->pos > longest_reply_bytes) return false;
  return redisReaderFeed(reader_, reinterpret_cast<const char*>(bytes.data()), bytes.size()) == 0;
}

reply_reader::outcome reply_reader::next(reply_sink& sink) {
  reader_->privdata = &sink;
  void* object = nullptr;
  if (redisReaderGetReply(reader_, &object) != 0) return outcome::broken;
  return object != nullptr ? outcome::taken : outcome::incomplete;
}

void reply_reader::reset() {
  redisReaderFree(reader_);
  reader_ = make_reader();
}

void reply_reader::abandon() {
  reader_ = make_reader();
}

}  // namespace far::backend
