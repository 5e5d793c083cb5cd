// What a cluster asks of the far tier over its servers, whichever way that keeps bytes safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/replicated/replicated_backend.h"
#include "backend/striped/striped_backend.h"

namespace far::simulation {

struct server_count {
  const char* name;
  std::uint64_t number;
  bool is_rare = false;  // only a long simulation must have come across it
};

class tier_books {
 public:
  // Where the bytes of a server's slot are, or nullptr when it has forgotten them.
  using stored_bytes = std::function<const std::byte*(std::size_t server, backend::slot_id slot)>;
  // Whether nobody is writing to a slot of the far tier.
  using settled = std::function<bool(backend::slot_id slot)>;
  using right_bytes = std::function<bool(const std::byte* page)>;

  virtual ~tier_books() = default;
  [[nodiscard]] virtual const backend::layer& members() const = 0;
  [[nodiscard]] virtual bool is_whole() const = 0;
  // Whether the servers know every extent that the layer believes to have there.
  [[nodiscard]] virtual bool are_known(const stored_bytes& bytes) const = 0;
  // The bytes are the same wherever they should be, and can be had. Only a part of each page is looked at, another one
  // for each `turn`.
  virtual void check(const stored_bytes& bytes, const settled& is_settled, std::uint64_t turn) const = 0;
  // Whether others of a group lack bytes that this server has: it may be asked for them at any moment.
  [[nodiscard]] virtual bool may_be_copied_from(std::size_t server) const = 0;
  // For people, on standard error: all of it; and where the bytes of a slot are, of which `fits` says whether they are
  // right.
  virtual void describe() const = 0;
  virtual void describe_slot(backend::slot_id slot, const stored_bytes& bytes, const right_bytes& fits) const = 0;
  [[nodiscard]] virtual result<void> add_member(std::unique_ptr<backend::backend> store, std::string name) = 0;
  // Requests work that only a full far tier would need.
  virtual void make_work() {}
  [[nodiscard]] virtual std::vector<server_count> counted() const = 0;
};

// Requires: they outlive the books.
[[nodiscard]] std::unique_ptr<tier_books> books_of(backend::replicated_backend& tier);
[[nodiscard]] std::unique_ptr<tier_books> books_of(backend::striped_backend& tier);

}  // namespace far::simulation
