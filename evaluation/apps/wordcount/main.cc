// wordcount: counts words, or visitors of web pages, in the way of MapReduce: tasks take parts of the input, and count
// into one table (the programs of Metis in Atlas, section 5). evaluation/apps/README.md says how to run it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apps/program.h"
#include "apps/random.h"
#include "apps/web/zipf.h"

namespace {

using text = memory::vector<char>;
using counts = memory::hash_map<memory::string, std::uint64_t, memory::string_hash>;
using part_counts = std::unordered_map<std::string_view, std::uint64_t>;

// As much as a scope should hold. No word or line goes beyond the end of a part.
constexpr std::size_t part_bytes = std::size_t{64} << 10;

struct options {
  std::string job = "words";
  std::size_t bytes = std::size_t{64} << 20;
  std::uint32_t distinct = 500'000;
  double zipf = 0.9;
  std::uint64_t seed = 1;
};

// Parts of words, or of lines "PAGE VISITOR", drawn by Zipf's distribution; their rest is spaces.
class generator {
 public:
  explicit generator(const options& chosen) : chosen_(chosen), ranks_(chosen.distinct, chosen.zipf) {}

  [[nodiscard]] std::string part(std::size_t number) const {
    apps::random_words random(apps::mix(chosen_.seed) + number);
    std::string words;
    std::string next;
    for (add(random, next); words.size() + next.size() <= part_bytes; add(random, next)) {
      words += next;
      next.clear();
    }
    words.resize(part_bytes, ' ');
    return words;
  }

 private:
  void add(apps::random_words& random, std::string& into) const {
    const std::uint64_t name = apps::mix(ranks_.draw(random) + 1);
    if (chosen_.job == "words") {
      into = fmt::format("{:x} ", name >> (name % 11 * 4));
    } else {
      into = fmt::format("/pages/{:x}.html 10.{}.{}.1\n", name, random.next() % 256, random.next() % 16);
    }
  }

  const options& chosen_;
  web::zipf ranks_;
};

// Calls visit(item) for what stands between separators.
template <typename Visit>
void for_each_item(std::string_view all, std::string_view separators, const Visit& visit) {
  for (std::size_t at = all.find_first_not_of(separators); at != all.npos;) {
    const std::size_t end = std::min(all.find_first_of(separators, at), all.size());
    visit(all.substr(at, end - at));
    at = all.find_first_not_of(separators, end);
  }
}

void add(counts& to, std::string_view key, std::uint64_t more) {
  // Another task may be the first between the two.
  while (!to.update(key, [&](std::uint64_t& count) { count += more; }) && !to.insert(key, more)) {
  }
}

// Calls map(part of the input, a local table) for all parts, and adds the tables up: Metis' combiner.
template <typename Map>
void count_into(counts& all, const text& input, memory::runtime& memory, const Map& map) {
  apps::in_parallel(memory, input.size(), part_bytes, [&](std::size_t first, std::size_t last) {
    // A scope for the part alone: the table that it fills may need room that its own pages take.
    std::string part(last - first, ' ');
    {
      const memory::scope here(memory);
      std::ranges::copy(input.chunk(here, first, last - first), part.begin());
    }
    part_counts found;
    map(std::string_view(part), found);
    for (const auto& [key, count] : found) add(all, key, count);
  });
}

// How often each word occurs.
void count_words(counts& all, const text& input, memory::runtime& memory) {
  count_into(all, input, memory, [](std::string_view part, part_counts& found) {
    for_each_item(part, " ", [&](std::string_view word) { ++found[word]; });
  });
}

// How many different visitors each page had.
void count_visitors(counts& all, counts& seen, const text& input, memory::runtime& memory) {
  count_into(all, input, memory, [&](std::string_view part, part_counts& found) {
    for_each_item(part, "\n", [&](std::string_view line) {
      const std::size_t page = line.find(' ');
      if (page != line.npos && seen.insert(line, std::uint64_t{1})) ++found[line.substr(0, page)];
    });
  });
}

// The most frequent ones, and a checksum of all, in any order.
evaluation::json summarise(const counts& all) {
  constexpr std::size_t shown = 5;
  std::vector<std::pair<std::uint64_t, std::string>> top;
  std::uint64_t checksum = 0;
  std::uint64_t sum = 0;
  all.for_each([&](const memory::string& key, std::uint64_t count) {
    const std::string name = key.str();
    checksum += apps::mix(std::hash<std::string_view>()(name) ^ apps::mix(count));
    sum += count;
    top.emplace_back(count, name);
    std::ranges::push_heap(top, std::greater());
    if (top.size() <= shown) return;
    std::ranges::pop_heap(top, std::greater());
    top.pop_back();
  });
  std::ranges::sort(top, std::greater());
  evaluation::json most;
  for (const auto& [count, name] : top) most[name] = count;
  return {{"distinct", all.size()}, {"counted", sum}, {"checksum", fmt::format("{:016x}", checksum)}, {"most", most}};
}

evaluation::json run(const options& chosen, memory::runtime& memory, apps::phases& timed) {
  text input(memory);
  timed.run("generate", [&] {
    const generator parts(chosen);
    for (std::size_t i = 0; i * part_bytes < chosen.bytes; ++i) input.append(parts.part(i));
  });
  counts all(memory);
  counts seen(memory);
  timed.run("count", [&] {
    if (chosen.job == "words") return count_words(all, input, memory);
    count_visitors(all, seen, input, memory);
  });
  evaluation::json results;
  timed.run("summarise", [&] { results = summarise(all); });
  return results;
}

}  // namespace

int main(int count, char** arguments) {
  options chosen;
  apps::program program("wordcount", "Counts the words of a text, or the visitors of web pages, by MapReduce.");
  program.options().add_choice("--job", chosen.job, "what to count", {"words", "visitors"});
  program.options().add_size("--bytes", chosen.bytes, "of the input, such as 64M", std::size_t{1} << 44);
  program.options().add_number("--distinct", chosen.distinct, "words or pages to draw from", 1u, 1u << 31);
  program.options().add_number("--zipf", chosen.zipf, "exponent of their distribution; 0: uniform", 0.0, 10.0);
  program.options().add_seed(chosen.seed, "the input is a function of it");
  return program.run(count, arguments,
                     [&](memory::runtime& memory, apps::phases& timed) { return run(chosen, memory, timed); });
}
