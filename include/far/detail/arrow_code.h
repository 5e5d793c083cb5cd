// The code of arrow.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "far/arrow.h"
#include "far/dataframe.h"
#include "far/detail/api.h"
#include "far/detail/arrow_reader.h"
#include "far/detail/arrow_structs.h"

namespace far {

namespace detail {

// What an exported struct points to. Its release() frees it with all children that have not been moved away.
struct arrow_schema_owner {
  std::string format;
  std::string name;
  std::vector<ArrowSchema> children;
  std::vector<ArrowSchema*> child_pointers;
  std::unique_ptr<ArrowSchema> dictionary;
};
struct arrow_array_owner {
  std::vector<std::vector<std::uint64_t>> buffers;
  std::vector<const void*> buffer_pointers;
  std::vector<ArrowArray> children;
  std::vector<ArrowArray*> child_pointers;
  std::unique_ptr<ArrowArray> dictionary;
};

template <typename Owner, typename Struct>
void release_arrow(Struct* released) {
  const std::unique_ptr<Owner> owner(static_cast<Owner*>(released->private_data));
  for (Struct& child : owner->children) {
    if (child.release != nullptr) child.release(&child);
  }
  if (owner->dictionary != nullptr && owner->dictionary->release != nullptr) {
    owner->dictionary->release(owner->dictionary.get());
  }
  released->release = nullptr;
}

inline ArrowSchema to_schema(std::unique_ptr<arrow_schema_owner> owner) {
  for (ArrowSchema& child : owner->children) owner->child_pointers.push_back(&child);
  ArrowSchema made{.format = owner->format.c_str(),
                   .name = owner->name.c_str(),
                   .metadata = nullptr,
                   .flags = ARROW_FLAG_NULLABLE,
                   .n_children = static_cast<std::int64_t>(owner->children.size()),
                   .children = owner->child_pointers.data(),
                   .dictionary = owner->dictionary.get(),
                   .release = release_arrow<arrow_schema_owner, ArrowSchema>,
                   .private_data = nullptr};
  made.private_data = owner.release();
  return made;
}
inline ArrowArray to_array(std::unique_ptr<arrow_array_owner> owner, std::size_t length, std::size_t nulls) {
  // Without nulls there is no bitmap of them.
  for (std::size_t i = 0; i < owner->buffers.size(); ++i) {
    owner->buffer_pointers.push_back(i == 0 && nulls == 0 ? nullptr : owner->buffers[i].data());
  }
  for (ArrowArray& child : owner->children) owner->child_pointers.push_back(&child);
  ArrowArray made{.length = static_cast<std::int64_t>(length),
                  .null_count = static_cast<std::int64_t>(nulls),
                  .offset = 0,
                  .n_buffers = static_cast<std::int64_t>(owner->buffer_pointers.size()),
                  .n_children = static_cast<std::int64_t>(owner->children.size()),
                  .buffers = owner->buffer_pointers.data(),
                  .children = owner->child_pointers.data(),
                  .dictionary = owner->dictionary.get(),
                  .release = release_arrow<arrow_array_owner, ArrowArray>,
                  .private_data = nullptr};
  made.private_data = owner.release();
  return made;
}

// Room for at least this many bytes, zeros; never null, also for none.
inline std::vector<std::uint64_t> arrow_buffer(std::size_t bytes) {
  return std::vector<std::uint64_t>(bytes / sizeof(std::uint64_t) + 1);
}
inline void set_bit(std::vector<std::uint64_t>& bits, std::size_t at) {
  bits[at / 64] |= std::uint64_t{1} << at % 64;
}

inline const char* arrow_format(column_type type) {
  switch (type) {
    case column_type::int64: return "l";
    case column_type::float64: return "g";
    case column_type::boolean: return "b";
    case column_type::time: return "tss:";
    case column_type::text: break;
  }
  return "i";
}

// As the format wants texts: no byte out of place, no longer form than needed, no surrogates, none above U+10FFFF.
[[nodiscard]] inline bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto first = static_cast<unsigned char>(text[at++]);
    if (first < 0x80) continue;
    if (first < 0xc2 || first > 0xf4) return false;
    const std::size_t more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
    if (text.size() - at < more) return false;
    // What may follow the first byte is less after some.
    const auto second = static_cast<unsigned char>(text[at]);
    const unsigned lowest = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned highest = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (second < lowest || second > highest) return false;
    for (std::size_t i = 1; i < more; ++i) {
      if ((static_cast<unsigned char>(text[at + i]) & 0xc0) != 0x80) return false;
    }
    at += more;
  }
  return true;
}

inline ArrowArray texts_to_arrow(const std::string& column_name, const std::vector<std::string>& texts) {
  auto owner = std::make_unique<arrow_array_owner>();
  std::vector<std::int32_t> offsets{0};
  std::string bytes;
  for (const std::string& text : texts) {
    if (!is_utf8(text)) {
      throw std::invalid_argument(
          "the column '" + column_name +
          "' has a text that is not UTF-8, which Arrow wants: convert it before it is appended");
    }
    if (text.size() > static_cast<std::size_t>(INT32_MAX) - bytes.size()) {
      throw std::length_error("the texts of a column take more than 2 GiB");
    }
    bytes += text;
    offsets.push_back(static_cast<std::int32_t>(bytes.size()));
  }
  owner->buffers = {arrow_buffer(0), arrow_buffer(offsets.size() * sizeof(std::int32_t)), arrow_buffer(bytes.size())};
  std::memcpy(owner->buffers[1].data(), offsets.data(), offsets.size() * sizeof(std::int32_t));
  std::memcpy(owner->buffers[2].data(), bytes.data(), bytes.size());
  return to_array(std::move(owner), texts.size(), 0);
}

inline ArrowArray column_to_arrow(const std::string& name, const column& from, std::size_t first, std::size_t count) {
  auto owner = std::make_unique<arrow_array_owner>();
  std::size_t nulls = 0;
  from.visit([&](const auto& all) {
    using T = typename std::remove_cvref_t<decltype(all)>::value_type;
    std::vector<T> numbers(count);
    all.read(first, std::span<T>(numbers));
    const interval<T> valid = from.valid(all);
    owner->buffers = {arrow_buffer(count / 8 + 1), {}};
    if (from.type() == column_type::boolean) {
      owner->buffers[1] = arrow_buffer(count / 8 + 1);
    } else if (from.type() == column_type::int64 || from.type() == column_type::time) {
      const std::vector<std::int64_t> wide(numbers.begin(), numbers.end());
      owner->buffers[1] = arrow_buffer(count * sizeof(std::int64_t));
      if (count > 0) std::memcpy(owner->buffers[1].data(), wide.data(), count * sizeof(std::int64_t));
    } else if (from.type() == column_type::float64) {
      const std::vector<double> wide(numbers.begin(), numbers.end());
      owner->buffers[1] = arrow_buffer(count * sizeof(double));
      if (count > 0) std::memcpy(owner->buffers[1].data(), wide.data(), count * sizeof(double));
    } else {
      owner->buffers[1] = arrow_buffer(count * sizeof(T));
      if (count > 0) std::memcpy(owner->buffers[1].data(), numbers.data(), count * sizeof(T));
    }
    for (std::size_t i = 0; i < count; ++i) {
      const bool is_value = numbers[i] >= valid.lowest && numbers[i] <= valid.highest;
      if (is_value) set_bit(owner->buffers[0], i);
      nulls += is_value ? 0 : 1;
      if constexpr (std::is_same_v<T, std::uint8_t>) {
        if (numbers[i] == 1) set_bit(owner->buffers[1], i);
      }
    }
  });
  if (from.type() == column_type::text) {
    owner->dictionary = std::make_unique<ArrowArray>(texts_to_arrow(name, from.dictionary()));
  }
  return to_array(std::move(owner), count, nulls);
}

inline ArrowSchema column_schema(const std::string& name, column_type type) {
  auto owner = std::make_unique<arrow_schema_owner>();
  owner->name = name;
  owner->format = arrow_format(type);
  if (type == column_type::text) {
    auto texts = std::make_unique<arrow_schema_owner>();
    texts->format = "u";
    owner->dictionary = std::make_unique<ArrowSchema>(to_schema(std::move(texts)));
  }
  return to_schema(std::move(owner));
}

}  // namespace detail

FAR_LIBRARY_CODE void export_to_arrow(const dataframe& from, std::size_t first, std::size_t count, ArrowSchema& schema,
                                      ArrowArray& array) {
  from.require_equal_columns();
  if (first > from.rows() || count > from.rows() - first) throw std::out_of_range("there are no such rows to export");
  auto schemas = std::make_unique<detail::arrow_schema_owner>();
  auto arrays = std::make_unique<detail::arrow_array_owner>();
  schemas->format = "+s";
  arrays->buffers = {detail::arrow_buffer(0)};
  const std::vector<std::string> names = from.names();
  // What is made is released when making the rest of it fails.
  struct releaser {
    detail::arrow_schema_owner& schemas;
    detail::arrow_array_owner& arrays;
    bool is_done = false;
    ~releaser() {
      if (is_done) return;
      for (ArrowSchema& one : schemas.children) one.release(&one);
      for (ArrowArray& one : arrays.children) one.release(&one);
    }
  } made{*schemas, *arrays};
  schemas->children.reserve(names.size());
  arrays->children.reserve(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const column& one = from.column_at(i);
    arrays->children.push_back(detail::column_to_arrow(names[i], one, first, count));
    schemas->children.push_back(detail::column_schema(names[i], one.type()));
  }
  made.is_done = true;
  schema = detail::to_schema(std::move(schemas));
  array = detail::to_array(std::move(arrays), count, 0);
}

namespace detail {

// Checks that it is a table, and that its columns are there.
inline void check_arrow_table(const ArrowSchema& schema) {
  check_arrow_schema(&schema, "table");
  const bool has_children = schema.n_children == 0 || (schema.n_children > 0 && schema.children != nullptr);
  if (std::string_view(schema.format) != "+s" || !has_children) {
    throw std::invalid_argument("an Arrow table is an array of structs, with a child for each column");
  }
  for (std::int64_t i = 0; i < schema.n_children; ++i) {
    const ArrowSchema* const child = schema.children[i];
    const bool has_name = child != nullptr && child->release != nullptr && child->name != nullptr;
    check_arrow_schema(child, "column " + (has_name ? "'" + std::string(child->name) + "'" : std::to_string(i)));
  }
}

inline std::vector<arrow_reader> readers_of(const ArrowSchema& schema, const ArrowArray& array) {
  check_arrow_table(schema);
  check_arrow_array(&array, 0, 1, "table");
  if (schema.n_children != array.n_children || (array.n_children > 0 && array.children == nullptr)) {
    throw std::invalid_argument("an Arrow table is an array of structs, with a child for each column");
  }
  std::vector<arrow_reader> readers;
  for (std::int64_t i = 0; i < schema.n_children; ++i) {
    if (array.children[i] == nullptr) refuse_arrow("column " + std::to_string(i), "has no array");
    readers.emplace_back(*schema.children[i], *array.children[i], array.offset + array.length);
  }
  return readers;
}

}  // namespace detail

FAR_LIBRARY_CODE void import_from_arrow(const ArrowSchema& schema, const ArrowArray& array, dataframe& to) {
  const std::vector<detail::arrow_reader> readers = detail::readers_of(schema, array);
  const std::size_t columns = readers.size();
  if (to.names().empty()) {
    // Throws at a name that is there twice, before the frame has any of the columns.
    dataframe same(to.home());
    for (const detail::arrow_reader& one : readers) same.add(one.name(), one.type());
    for (const detail::arrow_reader& one : readers) to.add(one.name(), one.type());
  }
  const std::vector<std::string> names = to.names();
  bool is_same = names.size() == columns;
  for (std::size_t i = 0; is_same && i < columns; ++i) {
    is_same = names[i] == readers[i].name() && to.column_at(i).type() == readers[i].type();
  }
  if (!is_same) throw std::invalid_argument("the Arrow table has other columns than the data frame");
  const detail::arrow_view structs(array);
  std::vector<cell> row(columns);
  for (std::size_t at = 0; at < static_cast<std::size_t>(array.length); ++at) {
    const bool is_null = structs.is_null(at);
    for (std::size_t i = 0; i < columns; ++i) {
      row[i] = is_null ? cell(null) : readers[i].read(at + static_cast<std::size_t>(array.offset));
    }
    to.append(row);
  }
}

FAR_LIBRARY_CODE void import_from_arrow(ArrowArrayStream& from, dataframe& to) {
  if (from.release == nullptr || from.get_schema == nullptr || from.get_next == nullptr) {
    throw std::invalid_argument("the Arrow stream is released, or lacks functions");
  }
  const auto require = [&from](int code) {
    if (code == 0) return;
    const char* const said = from.get_last_error == nullptr ? nullptr : from.get_last_error(&from);
    throw std::runtime_error("the Arrow stream has ended with an error: " +
                             (said == nullptr ? std::generic_category().message(code) : std::string(said)));
  };
  detail::arrow_owned<ArrowSchema> schema;
  require(from.get_schema(&from, &schema.value));
  // The columns come also where no batch does, and what is refused is refused before any.
  detail::check_arrow_table(schema.value);
  constexpr auto keep = [](ArrowArray*) {};
  ArrowArray no_values{};
  no_values.release = keep;
  no_values.dictionary = &no_values;
  std::vector<ArrowArray*> children(static_cast<std::size_t>(schema.value.n_children), &no_values);
  ArrowArray no_rows{};
  no_rows.release = keep;
  no_rows.n_children = schema.value.n_children;
  no_rows.children = children.data();
  import_from_arrow(schema.value, no_rows, to);
  while (true) {
    detail::arrow_owned<ArrowArray> batch;
    require(from.get_next(&from, &batch.value));
    if (batch.value.release == nullptr) return;
    import_from_arrow(schema.value, batch.value, to);
  }
}

}  // namespace far
