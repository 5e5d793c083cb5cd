/* A remote device (AIFM, sections 4.2.4 and 4.3): code of its operator's that runs in a memory server, beside data of
 * its own. docs/devices.md has an example and how to load one.
 *
 * A plugin is a shared object that defines far_device_plugin(). Each device that a client constructs lives in a process
 * of its own, in which one thread calls these functions, one call at a time. A device that ends its process, or takes
 * longer than its call may, is lost; nobody else notices.
 *
 * In C++, derive from far::plugin::device and write FAR_DEVICE_PLUGIN(class, "name", "version").
 *
 * This header is C and C++, and needs no other of Farheap.
 */
#ifndef FAR_PLUGIN_H
#define FAR_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A server loads plugins of its own version of this interface only. */
#define FAR_DEVICE_INTERFACE 1u

/* What a function returns. Anything else counts as FAR_DEVICE_REFUSED. */
#define FAR_DEVICE_OK 0
#define FAR_DEVICE_NO_OBJECT 1 /* there is no such object */
#define FAR_DEVICE_REFUSED 2   /* the arguments make no sense, or the device cannot do it; the output says why */

/* Where results go. append() returns 0, or another number when there is no room: at most 1048000 bytes, but for save()
 * as much as the device may hold. */
struct far_device_output {
  void* context;
  int (*append)(void* context, const void* bytes, size_t size);
};

struct far_device_functions {
  uint32_t interface_version; /* FAR_DEVICE_INTERFACE */
  const char* name;           /* by which clients construct it: 1 to 31 letters, digits, '-', '_' and '.' */
  const char* version;        /* for people; the same characters */

  /* A new device, or NULL. `options`: those that the operator wrote behind the plugin's file. `parameters`: of the
   * client's; they may be anything. */
  void* (*construct)(const char* options, const void* parameters, size_t size);
  void (*destruct)(void* device);
  /* Objects are named by numbers of the client's choice. */
  int (*read)(void* device, uint64_t object, const struct far_device_output* into);
  int (*write)(void* device, uint64_t object, const void* bytes, size_t size);
  int (*erase)(void* device, uint64_t object);
  /* Whatever else it does. The same calls in the same order have the same results: copies on other servers are kept
   * equal in this way. */
  int (*compute)(void* device, uint32_t opcode, const void* arguments, size_t size,
                 const struct far_device_output* into);
  /* Everything that it holds, as bytes; and the reverse, for a device without objects. Either may be NULL: then a copy
   * that was lost with its server cannot be made again. */
  int (*save)(void* device, const struct far_device_output* into);
  int (*load)(void* device, const void* bytes, size_t size);
};

/* Functions on the pages of containers (far/compute.h) are operations of compute(). A memory server makes a device,
 * with no parameters, for each client that uses them, and asks it about many parts of pages at a time. Numbers are of
 * the machine, without alignment of their own:
 *
 *     offset  size
 *     0       8     FAR_FUNCTION_MARK
 *     8       4     the size of an element
 *     12      4     the size of a result
 *     16      4     a: the size of the call's arguments, which are at FAR_FUNCTION_HEAD
 *     20      4     n: how many parts
 *     ...     4 n   the size of each part, at FAR_FUNCTION_HEAD + a, rounded up to 8
 *     ...           the parts, each at the next multiple of FAR_FUNCTION_ALIGNMENT
 *
 * The output is FAR_FUNCTION_MARK, and n results. */
#define FAR_FUNCTION_MARK 0x6e6f6974636e7566u
#define FAR_FUNCTION_HEAD 24u
#define FAR_FUNCTION_ALIGNMENT 64u

/* Lives as long as the process. */
__attribute__((visibility("default"))) const struct far_device_functions* far_device_plugin(void);

/* A plugin may define it, too: why this thread's last call of one of the functions was refused, the constructor among
 * them, or "". Without it, only what read(), compute() and save() write into their output says so. Clients get the
 * first FAR_DEVICE_FAILURE_BYTES. */
__attribute__((visibility("default"))) const char* far_device_failure(void);
#define FAR_DEVICE_FAILURE_BYTES 1024u

#ifdef __cplusplus
} /* extern "C" */

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstring>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace far::plugin {

using bytes = std::span<const std::byte>;

// Collects the result of a call.
class output {
 public:
  explicit output(const far_device_output* into) : into_(into) {}
  // Throws std::length_error when there is no room.
  void append(bytes added) {
    if (into_->append(into_->context, added.data(), added.size()) != 0)
      throw std::length_error("the result is too long");
  }
  void append(std::string_view text) { append(std::as_bytes(std::span(text))); }
  template <typename T>
    requires std::is_trivially_copyable_v<T> && (!std::is_convertible_v<const T&, std::string_view>) &&
             (!std::is_convertible_v<const T&, bytes>)
  void append(const T& value) {
    append(std::as_bytes(std::span(&value, 1)));
  }

 private:
  const far_device_output* into_;
};

// Throw no_object, or any other exception to refuse a call; the client gets its text, at most FAR_DEVICE_FAILURE_BYTES
// of it. A device that has thrown goes on.
class no_object : public std::exception {};

// A number or a struct at the front of `from`, which it is taken from. Throws std::invalid_argument when it is shorter.
template <typename T>
  requires std::is_trivially_copyable_v<T>
[[nodiscard]] T take(bytes& from) {
  T value;
  if (from.size() < sizeof value) throw std::invalid_argument("the arguments are too short");
  std::memcpy(&value, from.data(), sizeof value);
  from = from.subspan(sizeof value);
  return value;
}

// A device has a constructor (std::string_view options, bytes parameters).
class device {
 public:
  virtual ~device() = default;
  virtual void read(std::uint64_t object, output& into) = 0;
  virtual void write(std::uint64_t object, bytes contents) = 0;
  virtual void erase(std::uint64_t object) = 0;
  virtual void compute(std::uint32_t opcode, bytes arguments, output& into) = 0;
  // As in far_device_functions.
  virtual void save(output&) { throw std::logic_error("this device cannot be saved"); }
  virtual void load(bytes) { throw std::logic_error("this device cannot be loaded"); }
};

// A function on the elements of a container, which far::compute() (far/compute.h) has called where their pages are. It
// is a type without objects, in a header that the plugin and the program share:
//
//     struct square_sum {
//       static constexpr const char* plugin = "statistics";  // as FAR_DEVICE_PLUGIN wants them
//       static constexpr const char* version = "1.0";
//       static constexpr std::uint32_t number = 1;  // in the plugin; any but 0xffff'ffff
//       using element = double;
//       struct arguments {};
//       struct result { double sum = 0; };
//       static result map(std::span<const double> part, const arguments&);
//       static void combine(result& all, const result& next);
//     };
//
// map() gets a part of a page, of any length. combine() adds the result of what follows to that of what is in front;
// a result{} is that of nothing. Change the version with the code: a server that has another one is not asked.
template <typename F>
concept function =
    std::is_trivially_copyable_v<typename F::element> && std::has_single_bit(sizeof(typename F::element)) &&
    sizeof(typename F::element) <= 4096 && std::is_trivially_copyable_v<typename F::arguments> &&
    sizeof(typename F::arguments) <= 256 && std::is_trivially_copyable_v<typename F::result> &&
    std::is_default_constructible_v<typename F::result> && sizeof(typename F::result) <= 512 &&
    requires(std::span<const typename F::element> part, const typename F::arguments& with, typename F::result& all) {
      { F::plugin } -> std::convertible_to<const char*>;
      { F::version } -> std::convertible_to<const char*>;
      { F::number } -> std::convertible_to<std::uint32_t>;
      { F::map(part, with) } -> std::same_as<typename F::result>;
      F::combine(all, std::as_const(all));
    };

namespace detail {

// In place of a function's number, asks why the last call was refused.
inline constexpr std::uint32_t why_number = 0xffff'ffff;

// As results travel.
template <function F>
inline constexpr std::size_t result_bytes_of = (sizeof(typename F::result) + 7) / 8 * 8;

// Writes result_bytes_of<F>. Elements that are not where their type may be are copied first.
template <function F>
void map_part(const std::byte* part, std::size_t size, const typename F::arguments& with, std::byte* result) {
  using T = typename F::element;
  if (size % sizeof(T) != 0) throw std::invalid_argument("a part ends within an element");
  alignas(std::max<std::size_t>(alignof(T), 64)) std::array<std::byte, 4096> copy;
  if (reinterpret_cast<std::uintptr_t>(part) % alignof(T) != 0) {
    if (size > copy.size()) throw std::invalid_argument("a part is longer than a page");
    std::memcpy(copy.data(), part, size);
    part = copy.data();
  }
  const typename F::result found = F::map({reinterpret_cast<const T*>(part), size / sizeof(T)}, with);
  std::memset(result, 0, result_bytes_of<F>);
  std::memcpy(result, &found, sizeof found);
}

// Answers FAR_FUNCTION_MARK and what follows.
template <function F>
void map_parts(bytes asked, output& into) {
  static_assert(static_cast<std::uint32_t>(F::number) != why_number, "no function has the number 0xffff'ffff");
  const bytes all = asked;
  const auto at = [&](const bytes& rest) { return all.size() - rest.size(); };
  const auto skip_to_multiple = [&](std::size_t of) {
    const std::size_t skipped = (at(asked) + of - 1) / of * of - at(asked);
    if (skipped > asked.size()) throw std::invalid_argument("the arguments are too short");
    asked = asked.subspan(skipped);
  };
  if (take<std::uint64_t>(asked) != FAR_FUNCTION_MARK) throw std::invalid_argument("no call of a function");
  const auto element_bytes = take<std::uint32_t>(asked);
  const auto result_bytes = take<std::uint32_t>(asked);
  const auto argument_bytes = take<std::uint32_t>(asked);
  const auto parts = take<std::uint32_t>(asked);
  if (element_bytes != sizeof(typename F::element) || result_bytes != result_bytes_of<F> ||
      argument_bytes != sizeof(typename F::arguments)) {
    throw std::invalid_argument("the program's function has other types than that of the plugin");
  }
  const auto with = take<typename F::arguments>(asked);
  skip_to_multiple(8);
  if (parts > asked.size() / sizeof(std::uint32_t)) throw std::invalid_argument("the arguments are too short");
  bytes sizes = asked.first(parts * sizeof(std::uint32_t));
  asked = asked.subspan(sizes.size());
  into.append(std::uint64_t{FAR_FUNCTION_MARK});
  std::array<std::byte, result_bytes_of<F>> result;
  for (std::uint32_t i = 0; i < parts; ++i) {
    skip_to_multiple(FAR_FUNCTION_ALIGNMENT);
    const auto size = take<std::uint32_t>(sizes);
    if (size > asked.size()) throw std::invalid_argument("the arguments are too short");
    map_part<F>(asked.data(), size, with, result.data());
    into.append(bytes(result));
    asked = asked.subspan(size);
  }
}

// The device of which functions are the operations.
template <function... F>
class function_device final : public device {
 public:
  function_device(std::string_view /*options*/, bytes /*parameters*/) {}
  void read(std::uint64_t, output&) override { throw no_object(); }
  void write(std::uint64_t, bytes) override { throw no_object(); }
  void erase(std::uint64_t) override { throw no_object(); }
  void compute(std::uint32_t number, bytes asked, output& into) override {
    const bool is_there = ((number == F::number && (map_parts<F>(asked, into), true)) || ...);
    if (is_there) return;
    std::string others;
    ((others += (others.empty() ? "" : ", ") + std::to_string(F::number)), ...);
    throw std::invalid_argument("the plugin has no function " + std::to_string(number) + ", but " + others +
                                "; build plugin and program with the same header");
  }
};

// Of far_device_failure(). Hidden, so that each plugin has its own.
__attribute__((visibility("hidden"))) inline thread_local std::array<char, FAR_DEVICE_FAILURE_BYTES + 1> failure_text{};

inline void note_failure(std::string_view text) {
  const std::size_t bytes = std::min<std::size_t>(text.size(), FAR_DEVICE_FAILURE_BYTES);
  if (bytes > 0) std::memcpy(failure_text.data(), text.data(), bytes);
  failure_text.at(bytes) = 0;
}

// No exception leaves a plugin. Its text goes where the result would as well, for servers that ask no further.
template <typename Call>
int guarded(const far_device_output* into, Call call) {
  note_failure("");
  try {
    call();
    return FAR_DEVICE_OK;
  } catch (const no_object&) {
    return FAR_DEVICE_NO_OBJECT;
  } catch (const std::exception& failure) {
    note_failure(failure.what());
  } catch (...) {
    note_failure("the plugin threw something that is no std::exception");
  }
  const char* const text = failure_text.data();
  if (into != nullptr) static_cast<void>(into->append(into->context, text, std::strlen(text)));
  return FAR_DEVICE_REFUSED;
}

inline bytes view(const void* data, std::size_t size) {
  return {static_cast<const std::byte*>(data), size};
}
inline device& at(void* made) {
  return *static_cast<device*>(made);
}

template <typename Device>
void* construct(const char* options, const void* parameters, std::size_t size) {
  device* made = nullptr;
  static_cast<void>(guarded(nullptr, [&] { made = new Device(std::string_view(options), view(parameters, size)); }));
  return made;
}

inline int read(void* made, std::uint64_t object, const far_device_output* into) {
  return guarded(into, [&] {
    output result(into);
    at(made).read(object, result);
  });
}
inline int write(void* made, std::uint64_t object, const void* data, std::size_t size) {
  return guarded(nullptr, [&] { at(made).write(object, view(data, size)); });
}
inline int erase(void* made, std::uint64_t object) {
  return guarded(nullptr, [&] { at(made).erase(object); });
}
inline int compute(void* made, std::uint32_t opcode, const void* data, std::size_t size,
                   const far_device_output* into) {
  return guarded(into, [&] {
    output result(into);
    at(made).compute(opcode, view(data, size), result);
  });
}
inline int save(void* made, const far_device_output* into) {
  return guarded(into, [&] {
    output result(into);
    at(made).save(result);
  });
}
inline int load(void* made, const void* data, std::size_t size) {
  return guarded(nullptr, [&] { at(made).load(view(data, size)); });
}

template <typename Device>
far_device_functions functions(const char* name, const char* version) {
  return {FAR_DEVICE_INTERFACE,
          name,
          version,
          construct<Device>,
          [](void* made) { delete &at(made); },
          read,
          write,
          erase,
          compute,
          save,
          load};
}

template <function First, function... Others>
far_device_functions functions_of() {
  static_assert(((std::string_view(First::plugin) == Others::plugin) && ...), "functions of one plugin name it alike");
  static_assert(((std::string_view(First::version) == Others::version) && ...), "a plugin has one version");
  return functions<function_device<First, Others...>>(First::plugin, First::version);
}

}  // namespace detail
}  // namespace far::plugin

#define FAR_DETAIL_DEVICE_FAILURE                                                      \
  extern "C" __attribute__((visibility("default"))) const char* far_device_failure() { \
    return far::plugin::detail::failure_text.data();                                   \
  }

#define FAR_DEVICE_PLUGIN(Device, name, version)                                                      \
  extern "C" __attribute__((visibility("default"))) const far_device_functions* far_device_plugin() { \
    static const far_device_functions all = far::plugin::detail::functions<Device>(name, version);    \
    return &all;                                                                                      \
  }                                                                                                   \
  FAR_DETAIL_DEVICE_FAILURE

// FAR_FUNCTION_PLUGIN(square_sum, cube_sum): a plugin with these functions.
#define FAR_FUNCTION_PLUGIN(...)                                                                      \
  extern "C" __attribute__((visibility("default"))) const far_device_functions* far_device_plugin() { \
    static const far_device_functions all = far::plugin::detail::functions_of<__VA_ARGS__>();         \
    return &all;                                                                                      \
  }                                                                                                   \
  FAR_DETAIL_DEVICE_FAILURE

#endif /* __cplusplus */
#endif /* FAR_PLUGIN_H */
