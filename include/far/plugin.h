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

/* Lives as long as the process. */
__attribute__((visibility("default"))) const struct far_device_functions* far_device_plugin(void);

#ifdef __cplusplus
} /* extern "C" */

#include <cstring>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
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

// Throw no_object, or any other exception to refuse a call; the client gets its text. A device that has thrown goes on.
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

namespace detail {

// No exception leaves a plugin; its text goes where the result would.
template <typename Call>
int guarded(const far_device_output* into, Call call) {
  try {
    call();
    return FAR_DEVICE_OK;
  } catch (const no_object&) {
    return FAR_DEVICE_NO_OBJECT;
  } catch (const std::exception& failure) {
    if (into != nullptr) static_cast<void>(into->append(into->context, failure.what(), std::strlen(failure.what())));
  } catch (...) {
  }
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
  try {
    return static_cast<device*>(new Device(std::string_view(options), view(parameters, size)));
  } catch (...) {
    return nullptr;
  }
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

}  // namespace detail
}  // namespace far::plugin

#define FAR_DEVICE_PLUGIN(Device, name, version)                                                      \
  extern "C" __attribute__((visibility("default"))) const far_device_functions* far_device_plugin() { \
    static const far_device_functions all = far::plugin::detail::functions<Device>(name, version);    \
    return &all;                                                                                      \
  }

#endif /* __cplusplus */
#endif /* FAR_PLUGIN_H */
