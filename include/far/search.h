// Where a text occurs in a far::vector or a far::array of characters or bytes. Remote pages are not fetched for it: the
// memory server that holds them searches (AIFM, section 4.3; Atlas, section 5.4).
//
//     far::vector<char> log(farheap);
//     const std::uint64_t errors = far::count_text(log, "ERROR");
//     const far::vector<std::size_t> places = far::find_text(log, "timeout=");
//
// far::find_text(lines, "ERROR") of a far::vector<far::string> finds the strings that have the text in them.
//
// As far/query.h: the same results wherever the characters are; nobody may write to them meanwhile; several fibers;
// far::here(log) for what fits in local memory. Every place counts, also where the text overlaps itself: "aaa" has "aa"
// twice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "far/detail/answers.h"
#include "far/detail/reduction.h"
#include "far/query.h"
#include "far/scope.h"
#include "far/string.h"
#include "far/vector.h"

namespace far {

// Numbers of one byte.
template <typename Container>
concept far_characters = far_numbers<Container> && sizeof(typename Container::value_type) == 1;

namespace detail {

// The part of a text that servers search for; what is behind it is compared by the client.
[[nodiscard]] inline std::string_view searched_part(std::string_view text) {
  if (text.empty()) throw std::invalid_argument("far::find_text: the text is empty, so it is everywhere");
  return text.substr(0, most_text_bytes);
}

// `room`: for so many places, see most_places().
[[nodiscard]] inline reduction ask_for(std::string_view part, number_type type, std::uint8_t room) {
  reduction how{type, 0, 0, reduction_kind::matches, static_cast<std::uint8_t>(part.size()), room};
  std::memcpy(&how.lowest, part.data(), std::min<std::size_t>(part.size(), 8));
  if (part.size() > 8) std::memcpy(&how.highest, part.data() + 8, part.size() - 8);
  return how;
}

// In most pages a text is rare.
inline constexpr std::uint8_t few_places = 4;

template <typename Found>
void visit_places(std::string_view in, std::string_view text, const Found& found) {
  for (std::size_t at = in.find(text); at != std::string_view::npos; at = in.find(text, at + 1)) found(at);
}

// The places where a text crosses from one page to those behind it, of pages that are visited in order. Their answers
// have the characters at both ends.
class text_seams {
 public:
  explicit text_seams(std::string_view text) : text_(text) {}

  // Calls found(index of the first character) for all that end in these `count` characters.
  template <typename Found>
  void visit(std::size_t first, std::size_t count, const std::byte* ends, const Found& found) {
    const std::size_t reach = text_.size() - 1;
    const char* const head = reinterpret_cast<const char*>(ends);
    const std::size_t shown = std::min(count, most_text_bytes);
    const std::size_t carried = joined_.size();
    // With less than a text of either side, so that none lies in one of them.
    joined_.append(head, std::min(shown, reach));
    visit_places(joined_, text_, [&](std::size_t at) { found(first - carried + at); });
    if (count >= reach) {
      joined_.assign(head + most_text_bytes + shown - reach, reach);
    } else if (joined_.size() > reach) {
      joined_.erase(0, joined_.size() - reach);
    }
  }

 private:
  std::string_view text_;
  std::string joined_;  // between visits: the last characters
};

// Leaves those of the places where the text goes on like this.
template <far_characters Characters>
void keep_whole_ones(const Characters& all, std::string_view text, std::vector<std::size_t>& places) {
  using T = typename Characters::value_type;
  const std::size_t known = searched_part(text).size();
  const std::string_view rest = text.substr(known);
  if (rest.empty()) return;
  std::erase_if(places, [&](std::size_t place) { return all.size() - place < text.size(); });
  constexpr std::size_t compared_at_a_time = std::size_t{64} << 10;
  const std::size_t batch = std::max<std::size_t>(compared_at_a_time / rest.size(), 1);
  std::vector<std::size_t> indices;
  std::vector<T> characters;
  std::size_t kept = 0;
  for (std::size_t begin = 0; begin < places.size(); begin += batch) {
    const std::size_t end = std::min(begin + batch, places.size());
    indices.clear();
    for (std::size_t i = begin; i < end; ++i) {
      for (std::size_t at = known; at < text.size(); ++at) indices.push_back(places[i] + at);
    }
    characters.resize(indices.size());
    all.gather(indices, std::span<T>(characters));
    for (std::size_t i = begin; i < end; ++i) {
      if (std::memcmp(&characters[(i - begin) * rest.size()], rest.data(), rest.size()) == 0)
        places[kept++] = places[i];
    }
  }
  places.resize(kept);
}

// Calls use(places) for those of each page, in ascending order. A page that has more than an answer has room for is
// fetched. There is little room as long as the text is rare.
template <far_characters Characters, typename Use>
void visit_places_of(const Characters& all, std::string_view text, const Use& use) {
  using T = typename Characters::value_type;
  constexpr std::size_t at_a_time = std::size_t{1} << 20;
  constexpr std::size_t often = at_a_time / page_bytes_of_chunks / 64;
  const std::string_view part = searched_part(text);
  text_seams seams(part);
  std::vector<std::size_t> places;
  std::vector<T> fetched;
  std::uint8_t room = few_places;
  for (std::size_t begin = 0; begin < all.size(); begin += at_a_time) {
    std::size_t too_long = 0;
    const auto visit = [&](std::size_t first, std::size_t count, const std::byte* answer) {
      places.clear();
      const std::byte* const listed = answer + sizeof(std::uint64_t);
      seams.visit(first, count, listed + most_places_bytes(room), [&](std::size_t place) { places.push_back(place); });
      std::uint64_t found = 0;
      std::memcpy(&found, answer, sizeof found);
      if (found > most_places(room)) {
        ++too_long;
        fetched.resize(count);
        all.read(first, std::span<T>(fetched));
        visit_places({reinterpret_cast<const char*>(fetched.data()), count}, part,
                     [&](std::size_t at) { places.push_back(first + at); });
      } else {
        for (std::size_t i = 0; i < found; ++i) {
          std::uint16_t at = 0;
          std::memcpy(&at, listed + i * sizeof at, sizeof at);
          places.push_back(first + at);
        }
      }
      keep_whole_ones(all, text, places);
      use(places);
    };
    all.visit_answers(begin, std::min(at_a_time, all.size() - begin), ask_for(part, number_type_of<T>(), room), visit);
    if (too_long > often) room = 0;
  }
}

}  // namespace detail

// The indices of the characters with which the text begins, in ascending order, as a vector in the same far heap. Of a
// text of more than 16 characters, servers find the first 16, and the rest is read where these are. Throws
// std::invalid_argument when the text is empty, and as far::vector::push_back.
template <far_characters Characters>
[[nodiscard]] vector<std::size_t> find_text(const Characters& all, std::string_view text) {
  vector<std::size_t> found(all.home());
  detail::visit_places_of(all, text, [&](const std::vector<std::size_t>& places) { found.append(places); });
  return found;
}

// The indices of the strings that have the text in them, in ascending order. Strings of up to 15 characters lie in the
// vector; a longer one is fetched, unless it is shorter than the text. Throws as far::vector::push_back.
template <std::size_t Elements>
[[nodiscard]] vector<std::size_t> find_text(const vector<string, Elements>& all, std::string_view text) {
  std::mutex mutex;
  std::map<std::size_t, std::vector<std::size_t>> found;  // by the first string of a piece
  all.for_each_chunk([&](std::span<const string> part, std::size_t first) {
    constexpr std::size_t ahead = 32;
    std::vector<std::size_t> of_part;
    const auto prefetch = [&](std::size_t i) {
      if (i < part.size() && part[i].size() >= text.size()) static_cast<void>(part[i].prefetch());
    };
    for (std::size_t i = 0; i < std::min(ahead, part.size()); ++i) prefetch(i);
    for (std::size_t i = 0; i < part.size(); ++i) {
      prefetch(i + ahead);
      if (part[i].size() < text.size()) continue;
      const scope here(all.home().home());
      if (part[i].view(here).find(text) != std::string_view::npos) of_part.push_back(first + i);
    }
    const std::lock_guard lock(mutex);
    found.emplace(first, std::move(of_part));
  });
  vector<std::size_t> indices(all.home());
  for (const auto& [first, some] : found) indices.append(some);
  return indices;
}

// How many they are. Up to 16 characters, it fetches nothing, however many they are.
template <far_characters Characters>
[[nodiscard]] std::uint64_t count_text(const Characters& all, std::string_view text) {
  std::uint64_t count = 0;
  const std::string_view part = detail::searched_part(text);
  if (part.size() < text.size()) {
    detail::visit_places_of(all, text, [&](const std::vector<std::size_t>& places) { count += places.size(); });
    return count;
  }
  detail::text_seams seams(part);
  constexpr std::uint8_t room = detail::few_places;
  all.visit_answers(detail::ask_for(part, detail::number_type_of<typename Characters::value_type>(), room),
                    [&](std::size_t first, std::size_t pieces, const std::byte* answer) {
                      const std::byte* const ends = answer + sizeof count + detail::most_places_bytes(room);
                      seams.visit(first, pieces, ends, [&](std::size_t) { ++count; });
                      std::uint64_t within = 0;
                      std::memcpy(&within, answer, sizeof within);
                      count += within;
                    });
  return count;
}

}  // namespace far
