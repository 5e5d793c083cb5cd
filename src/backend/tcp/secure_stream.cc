#include "backend/tcp/secure_stream.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "platform/local_memory.h"

namespace far::backend {

secure_stream::secure_stream(std::unique_ptr<byte_stream> below, wire::tls_context& trust, std::string server_name)
    : below_(std::move(below)),
      trust_(trust),
      server_name_(std::move(server_name)),
      buffers_(platform::map_local(2 * buffer_bytes)) {
  constexpr std::size_t longest_name_bytes = 256;
  server_name_.reserve(longest_name_bytes);  // use_server() allocates nothing
}

secure_stream::~secure_stream() {
  platform::unmap_local(buffers_, 2 * buffer_bytes);
}

void secure_stream::use_server(std::string_view host, std::uint16_t port, std::string_view name) {
  below_->use_server(host, port, name);
  server_name_ = name.empty() ? host : name;
}

int secure_stream::connect() {
  result<std::unique_ptr<wire::tls_stream>> created = wire::tls_stream::create(trust_, server_name_);
  if (!created) return -failed(created.error());
  tls_ = std::move(created).value();
  out_begin_ = out_end_ = 0;
  explanation_[0] = '\0';
  return below_->connect();
}

int secure_stream::finish_connecting() {
  return below_->finish_connecting();
}

int secure_stream::failed(const far::error& why) {
  const std::size_t length = std::min(why.message.size(), explanation_.size() - 1);
  std::copy_n(why.message.data(), length, explanation_.data());
  explanation_[length] = '\0';
  // The alert tells the server why.
  static_cast<void>(flush());
  if (why.code == ECONNRESET) return -EPIPE;
  return why.code == 0 ? -EACCES : -why.code;
}

int secure_stream::flush() {
  while (true) {
    if (out_begin_ == out_end_) {
      out_begin_ = 0;
      out_end_ = tls_->take({buffers_, buffer_bytes});
      if (out_end_ == 0) return 0;
    }
    const iovec rest{buffers_ + out_begin_, out_end_ - out_begin_};
    const std::ptrdiff_t sent = below_->try_send({&rest, 1});
    if (sent < 0) return static_cast<int>(sent);
    out_begin_ += static_cast<std::size_t>(sent);
    if (out_begin_ < out_end_) return 0;
  }
}

std::ptrdiff_t secure_stream::try_send(std::span<const iovec> chunks) {
  if (tls_ == nullptr) return -ENOTCONN;
  std::ptrdiff_t taken = 0;
  for (const iovec& chunk : chunks) {
    std::size_t offset = 0;
    while (offset < chunk.iov_len) {
      // Bytes that cannot leave are not encrypted either: an unsent message may still be dropped.
      if (const int broken = flush(); broken != 0) return broken;
      if (has_unsent()) return taken;
      const std::size_t step = std::min(chunk.iov_len - offset, buffer_bytes);
      const result<std::size_t> written = tls_->write({static_cast<const std::byte*>(chunk.iov_base) + offset, step});
      if (!written) return failed(written.error());
      if (written.value() == 0) return taken;
      offset += written.value();
      taken += static_cast<std::ptrdiff_t>(written.value());
    }
  }
  const int broken = flush();
  return broken != 0 ? broken : taken;
}

// Reads ciphertext. 0: nothing has come.
int secure_stream::fill() {
  std::byte* const in = buffers_ + buffer_bytes;
  const iovec room{in, buffer_bytes};
  const std::ptrdiff_t received = below_->try_receive({&room, 1});
  if (received <= 0) return static_cast<int>(received);
  return tls_->feed({in, static_cast<std::size_t>(received)}) ? 1 : -EPROTO;
}

std::ptrdiff_t secure_stream::try_receive(std::span<const iovec> into) {
  if (tls_ == nullptr) return -ENOTCONN;
  std::ptrdiff_t total = 0;
  for (const iovec& chunk : into) {
    std::size_t offset = 0;
    while (offset < chunk.iov_len) {
      const result<std::size_t> read =
          tls_->read({static_cast<std::byte*>(chunk.iov_base) + offset, chunk.iov_len - offset});
      // Bytes that came before the failure are handed out; the next call returns the failure.
      if (!read) return total > 0 ? total : failed(read.error());
      offset += read.value();
      total += static_cast<std::ptrdiff_t>(read.value());
      if (read.value() > 0) continue;
      if (const int broken = flush(); broken != 0) return total > 0 ? total : broken;
      const int filled = fill();
      if (filled < 0) return total > 0 ? total : filled;
      if (filled == 0) return total;
    }
  }
  return total;
}

bool secure_stream::has_unsent() const {
  return tls_ != nullptr && (out_begin_ < out_end_ || tls_->pending() > 0);
}

void secure_stream::close() {
  below_->close();
  tls_.reset();
  out_begin_ = out_end_ = 0;
}

void secure_stream::abandon() {
  below_->abandon();
  // Another thread of the parent may have been inside OpenSSL at the fork: its state is left alone, and lost.
  static_cast<void>(tls_.release());
  out_begin_ = out_end_ = 0;
}

}  // namespace far::backend
