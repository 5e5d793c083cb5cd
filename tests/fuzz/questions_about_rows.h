// Part of fuzz_offload: the call "group" (wire/rows.h).
#pragma once

#include <span>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "server/store.h"

namespace far::fuzz {

// Arguments that mostly make sense, about slots near what is allocated. Each fourth is changed on the way.
[[nodiscard]] byte_string question_about_rows(choices& input);
// Requires: the arguments were accepted, and all slots are in the session.
void expect_answers_about_rows(const server::session& data, std::span<const std::byte> arguments,
                               std::span<const std::byte> result);
void add_seeds_about_rows(std::vector<byte_string>& all);

}  // namespace far::fuzz
