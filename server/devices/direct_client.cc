#include "server/devices/direct_client.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace far::server {

direct_client::direct_client(int socket, const handover& agreed, std::span<std::byte> space)
    : socket_(socket), agreed_(agreed), space_(space) {}

direct_client::~direct_client() {
  close(socket_);
}

direct_client::step direct_client::receive() {
  ssize_t got = 0;
  do {
    got = recv(socket_, space_.data() + held_, space_.size() - held_, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? step::nothing : step::over;
  if (got == 0) return step::over;
  held_ += static_cast<std::size_t>(got);
  return understand();
}

// The client has one call under way, and waits for its answer before it sends the next. So whatever follows a message,
// or is none of an operation, is of a client that does something else, which the server understands better.
direct_client::step direct_client::understand() {
  if (held_ < wire::header_bytes) return step::nothing;
  const std::optional<wire::header> head = wire::decode_header(space_.first<wire::header_bytes>());
  if (!head || head->is_reply || head->op != wire::opcode::call) return step::over;
  message_ = wire::header_bytes + head->payload_bytes;
  if (held_ < message_) return step::nothing;
  const std::span<const std::byte> payload = space_.subspan(wire::header_bytes, head->payload_bytes);
  if (held_ > message_ || wire::checksum(payload) != head->payload_checksum) return step::over;
  const std::optional<wire::call_request> call = wire::decode_call(payload);
  if (!call || call->name != wire::device_call_name) return step::over;
  const std::optional<wire::device_request> asked = wire::decode_device_request(call->arguments);
  if (!asked || asked->device != agreed_.device || !wire::is_operation(asked->op)) return step::over;
  cookie_ = head->cookie;
  asked_ = *asked;
  return step::asked;
}

bool direct_client::greet() {
  return send(agreed_.cookie, {wire::device_outcome::ok, {}});
}

bool direct_client::answer(const wire::device_reply& said) {
  held_ = 0;
  return send(cookie_, said);
}

bool direct_client::send(std::uint64_t cookie, const wire::device_reply& said) {
  const std::span all(head_);
  wire::encode(said, all.subspan<wire::header_bytes>());
  const std::array<hash_part, 2> parts{
      {{head_.data() + wire::header_bytes, wire::device_reply_bytes}, {said.bytes.data(), said.bytes.size()}}};
  wire::encode({.op = wire::opcode::call,
                .is_reply = true,
                .result = wire::status::ok,
                .payload_bytes = static_cast<std::uint32_t>(wire::device_reply_bytes + said.bytes.size()),
                .cookie = cookie,
                .payload_checksum = wire::checksum_of_parts(parts)},
               all.first<wire::header_bytes>());
  left_ = {all, said.bytes};
  return send_more();
}

bool direct_client::send_more() {
  while (!is_sent()) {
    std::array<iovec, 2> chunks{};
    for (std::size_t i = 0; i < left_.size(); ++i) {
      chunks[i] = {const_cast<std::byte*>(left_[i].data()), left_[i].size()};  // sendmsg only reads them
    }
    msghdr message{};
    message.msg_iov = chunks.data();
    message.msg_iovlen = chunks.size();
    const ssize_t sent = sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    std::size_t gone = static_cast<std::size_t>(sent);
    for (std::span<const std::byte>& part : left_) {
      const std::size_t of_part = std::min(gone, part.size());
      part = part.subspan(of_part);
      gone -= of_part;
    }
  }
  return true;
}

}  // namespace far::server
