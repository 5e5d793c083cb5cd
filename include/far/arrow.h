// far::dataframe to and from Arrow's C data interface (https://arrow.apache.org/docs/format/CDataInterface.html): two
// plain structs by which libraries in one process hand tables to each other, among them readers of Parquet
// (docs/dataframe.md).
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
#include <utility>
#include <vector>

#include "far/dataframe.h"

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

extern "C" {

struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};

}  // extern "C"
#endif

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

inline ArrowArray texts_to_arrow(const std::vector<std::string>& texts) {
  auto owner = std::make_unique<arrow_array_owner>();
  std::vector<std::int32_t> offsets{0};
  std::string bytes;
  for (const std::string& text : texts) {
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

inline ArrowArray column_to_arrow(const column& from, std::size_t first, std::size_t count) {
  auto owner = std::make_unique<arrow_array_owner>();
  std::size_t nulls = 0;
  from.visit([&](const auto& all) {
    using T = typename std::remove_cvref_t<decltype(all)>::value_type;
    std::vector<T> numbers(count);
    all.read(first, std::span<T>(numbers));
    const interval<T> valid = column::valid(all);
    owner->buffers = {arrow_buffer(count / 8 + 1), arrow_buffer(count * sizeof(T))};
    if (count > 0) std::memcpy(owner->buffers[1].data(), numbers.data(), count * sizeof(T));
    if constexpr (std::is_same_v<T, std::uint8_t>) owner->buffers[1] = arrow_buffer(count / 8 + 1);
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
    owner->dictionary = std::make_unique<ArrowArray>(texts_to_arrow(from.dictionary()));
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

// An array that was imported, beside its schema.
struct arrow_view {
  const ArrowSchema& schema;
  const ArrowArray& array;

  [[nodiscard]] std::string_view format() const { return schema.format; }
  [[nodiscard]] bool is_null(std::size_t row) const {
    return array.null_count != 0 && array.buffers[0] != nullptr && !bit(0, row);
  }
  [[nodiscard]] bool bit(std::size_t buffer, std::size_t row) const {
    const std::size_t at = row + static_cast<std::size_t>(array.offset);
    return (static_cast<const std::uint8_t*>(array.buffers[buffer])[at / 8] >> at % 8 & 1) != 0;
  }
  template <typename T>
  [[nodiscard]] T number(std::size_t row) const {
    return static_cast<const T*>(array.buffers[1])[row + static_cast<std::size_t>(array.offset)];
  }
  template <typename Offset>
  [[nodiscard]] std::string text(std::size_t row) const {
    const Offset* const offsets = static_cast<const Offset*>(array.buffers[1]) + array.offset + row;
    return {static_cast<const char*>(array.buffers[2]) + offsets[0], static_cast<std::size_t>(offsets[1] - offsets[0])};
  }
  [[nodiscard]] std::int64_t integer(std::size_t row) const {
    switch (schema.format[0]) {
      case 'c': return number<std::int8_t>(row);
      case 'C': return number<std::uint8_t>(row);
      case 's': return number<std::int16_t>(row);
      case 'S': return number<std::uint16_t>(row);
      case 'i': return number<std::int32_t>(row);
      case 'I': return number<std::uint32_t>(row);
      default: return number<std::int64_t>(row);
    }
  }
  [[nodiscard]] bool is_integer() const {
    return format().size() == 1 && std::string_view("cCsSiIl").find(format()[0]) != std::string_view::npos;
  }
};

// A name may be left out.
inline std::string name_from_arrow(const ArrowSchema& schema) {
  return schema.name == nullptr ? std::string() : std::string(schema.name);
}

inline column_type type_from_arrow(const ArrowSchema& schema) {
  const std::string_view format = schema.format;
  const auto is_text = [](std::string_view of) { return of == "u" || of == "U"; };
  if (schema.dictionary != nullptr) {
    if (is_text(schema.dictionary->format)) return column_type::text;
  } else if (format.size() == 1 && std::string_view("cCsSiIl").find(format[0]) != std::string_view::npos) {
    return column_type::int64;
  } else if (format == "g" || format == "f") {
    return column_type::float64;
  } else if (format == "b") {
    return column_type::boolean;
  } else if (format.starts_with("tss:")) {
    return column_type::time;
  } else if (is_text(format)) {
    return column_type::text;
  }
  throw std::invalid_argument("the Arrow column '" + name_from_arrow(schema) + "' has the format '" + schema.format +
                              "', which a data frame does not have");
}

inline cell cell_from_arrow(const arrow_view& from, column_type type, std::size_t row) {
  if (from.is_null(row)) return null;
  switch (type) {
    case column_type::int64: return from.integer(row);
    case column_type::float64:
      return from.format() == "f" ? static_cast<double>(from.number<float>(row)) : from.number<double>(row);
    case column_type::boolean: return from.bit(1, row);
    case column_type::time: return timestamp{from.number<std::int64_t>(row)};
    case column_type::text: break;
  }
  if (from.schema.dictionary != nullptr) {
    if (!from.is_integer()) throw std::invalid_argument("an Arrow dictionary has indices that are no integers");
    const std::int64_t index = from.integer(row);
    if (index < 0 || index >= from.array.dictionary->length) {
      throw std::invalid_argument("an index of an Arrow dictionary is out of range");
    }
    const arrow_view texts{*from.schema.dictionary, *from.array.dictionary};
    return cell_from_arrow(texts, column_type::text, static_cast<std::size_t>(index));
  }
  return from.format() == "u" ? from.text<std::int32_t>(row) : from.text<std::int64_t>(row);
}

}  // namespace detail

// Copies rows to local memory, as an array of structs ("+s") with a child for each column: "l", "g", "b", "tss:", and
// of texts a dictionary of "u" with indices "i". A table larger than local memory is exported some rows at a time. The
// caller owns both structs, and calls their release(). Throws std::out_of_range.
inline void export_to_arrow(const dataframe& from, std::size_t first, std::size_t count, ArrowSchema& schema,
                            ArrowArray& array) {
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
    arrays->children.push_back(detail::column_to_arrow(one, first, count));
    schemas->children.push_back(detail::column_schema(names[i], one.type()));
  }
  made.is_done = true;
  schema = detail::to_schema(std::move(schemas));
  array = detail::to_array(std::move(arrays), count, 0);
}

// Appends the rows of an array of structs to a frame, which gets the columns first if it has none; otherwise they have
// the same names and types in the same order. Integers up to int64, floating point, booleans, times in seconds, and
// texts, plain or in a dictionary. Takes over neither struct. Throws std::invalid_argument when a column has another
// type, or the name of another, and std::range_error for an int64 that stands for null; rows before it are then there.
inline void import_from_arrow(const ArrowSchema& schema, const ArrowArray& array, dataframe& to) {
  if (std::string_view(schema.format) != "+s" || schema.n_children != array.n_children) {
    throw std::invalid_argument("an Arrow table is an array of structs, with a child for each column");
  }
  const auto columns = static_cast<std::size_t>(schema.n_children);
  std::vector<column_type> types;
  for (std::size_t i = 0; i < columns; ++i) types.push_back(detail::type_from_arrow(*schema.children[i]));
  if (to.names().empty()) {
    // Throws at a name that is there twice, before the frame has any of the columns.
    dataframe same(to.home());
    for (std::size_t i = 0; i < columns; ++i) same.add(detail::name_from_arrow(*schema.children[i]), types[i]);
    for (std::size_t i = 0; i < columns; ++i) to.add(detail::name_from_arrow(*schema.children[i]), types[i]);
  }
  const std::vector<std::string> names = to.names();
  bool is_same = names.size() == columns;
  for (std::size_t i = 0; is_same && i < columns; ++i) {
    is_same = names[i] == detail::name_from_arrow(*schema.children[i]) && to.column_at(i).type() == types[i];
  }
  if (!is_same) throw std::invalid_argument("the Arrow table has other columns than the data frame");
  const detail::arrow_view structs{schema, array};
  std::vector<cell> row(columns);
  for (std::size_t at = 0; at < static_cast<std::size_t>(array.length); ++at) {
    const bool is_null = structs.is_null(at);
    for (std::size_t i = 0; i < columns; ++i) {
      const detail::arrow_view values{*schema.children[i], *array.children[i]};
      const std::size_t place = at + static_cast<std::size_t>(array.offset);
      row[i] = is_null ? cell(null) : detail::cell_from_arrow(values, types[i], place);
    }
    to.append(row);
  }
}

}  // namespace far
