// TLS over another stream.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "backend/tcp/byte_stream.h"
#include "wire/tls.h"

namespace far::backend {

// The certificate is checked before a byte of ours is sent. Closing is abrupt: messages have lengths of their own, so
// TLS need not mark the end.
class secure_stream final : public byte_stream {
 public:
  // `server_name`: the name that the certificate must have. `trust` outlives the stream.
  secure_stream(std::unique_ptr<byte_stream> below, wire::tls_context& trust, std::string server_name);
  ~secure_stream() override;

  [[nodiscard]] std::size_t address() const override { return below_->address(); }
  void use_address(std::size_t number) override { below_->use_address(number); }
  [[nodiscard]] std::size_t address_after(std::size_t number) const override { return below_->address_after(number); }
  void use_server(std::string_view host, std::uint16_t port, std::string_view name) override;
  void watch_also(int descriptor) override { below_->watch_also(descriptor); }
  [[nodiscard]] std::optional<wire::channel_binding> binding() const override { return tls_->binding(); }
  [[nodiscard]] int connect() override;
  [[nodiscard]] int finish_connecting() override;
  [[nodiscard]] std::ptrdiff_t try_send(std::span<const iovec> chunks) override;
  [[nodiscard]] std::ptrdiff_t try_receive(std::span<const iovec> into) override;
  [[nodiscard]] bool has_unsent() const override;
  void close() override;
  void abandon() override;
  [[nodiscard]] int descriptor() const override { return below_->descriptor(); }
  void wait(std::uint64_t timeout_ns) override { below_->wait(timeout_ns); }
  [[nodiscard]] const char* explanation() const override { return explanation_.data(); }

 private:
  // Each returns 0 or a negative errno value.
  [[nodiscard]] int flush();
  [[nodiscard]] int fill();
  [[nodiscard]] int failed(const far::error& why);

  static constexpr std::size_t buffer_bytes = std::size_t{64} << 10;

  const std::unique_ptr<byte_stream> below_;
  wire::tls_context& trust_;
  std::string server_name_;
  std::unique_ptr<wire::tls_stream> tls_;
  std::byte* buffers_;  // two of them: what goes out, and what came in
  std::size_t out_begin_ = 0;
  std::size_t out_end_ = 0;
  std::array<char, 256> explanation_{};
};

}  // namespace far::backend
