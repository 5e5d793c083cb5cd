// Single transfers of pages to and from a far tier that may fail or be slow, with bytes that tell slots apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "backend/backend.h"

namespace far::testing_support {

// The byte at a place in a page.
[[nodiscard]] std::byte content(backend::slot_id slot, std::size_t at, std::uint64_t generation = 0);

// Writes the page of this slot and generation, while the far tier is tended. 0, an error code, or EDEADLK when there is
// no outcome after two minutes.
[[nodiscard]] int write_slot(backend::backend& far, backend::channel& queue, backend::slot_id slot,
                             std::uint64_t generation = 0);

// As write_slot(); EBADMSG when the bytes are not those that were written.
[[nodiscard]] int read_slot(backend::backend& far, backend::channel& queue, backend::slot_id slot,
                            std::uint64_t generation = 0);

// Tends the far tier until the condition holds; false when it does not within two minutes.
[[nodiscard]] bool reached(backend::backend& far, const std::function<bool()>& condition);

}  // namespace far::testing_support
