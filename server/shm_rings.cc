#include "server/shm_rings.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "server/shm_memory.h"
#include "wire/message.h"

namespace far::server {

using wire::ring_file_bytes;

shm_rings::~shm_rings() {
  if (mapped_ != nullptr) munmap(mapped_, ring_file_bytes);
  close_descriptor();
}

result<void> shm_rings::create() {
  const result<int> file = make_sealed_file("farheap-rings", ring_file_bytes);
  if (!file) return file.error();
  descriptor_ = file.value();
  void* const mapped = mmap(nullptr, ring_file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (mapped == MAP_FAILED) {
    return error{std::string("the server cannot map one more connection: ") + std::strerror(errno), errno};
  }
  mapped_ = static_cast<wire::ring_file*>(mapped);
  mapped_->magic = wire::ring_magic;
  mapped_->version = wire::ring_version;
  requests = wire::ring_consumer(mapped_->request_ring());
  replies = wire::ring_producer(mapped_->reply_ring());
  return {};
}

void shm_rings::close_descriptor() {
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
}

void shm_rings::revoke() {
  if (mapped_ != nullptr) mapped_->revoked.value.store(1, std::memory_order_seq_cst);
}

std::byte* shm_rings::fragment(const wire::ring_request& asked) const {
  if (asked.fragment >= wire::ring_length || asked.length_bytes > wire::fragment_bytes) return nullptr;
  return mapped_->area + asked.fragment * wire::fragment_bytes;
}

std::span<std::byte> shm_rings::fragments_of_call(const wire::ring_request& asked) const {
  const std::uint64_t count = std::max<std::uint64_t>(asked.count, 1);
  if (asked.fragment >= wire::ring_length || count > wire::ring_length - asked.fragment) return {};
  const std::size_t bytes = std::min<std::size_t>(count * wire::fragment_bytes, wire::maximum_payload_bytes);
  if (asked.length_bytes > bytes) return {};
  return {mapped_->area + asked.fragment * wire::fragment_bytes, bytes};
}

}  // namespace far::server
