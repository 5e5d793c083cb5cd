#include "tests/support/failing_tier.h"

#include <cerrno>
#include <memory>
#include <string_view>
#include <utility>

#include "backend/backend.h"
#include "backend/memory/memory_backend.h"
#include "backend/uri.h"
#include "base/check.h"

namespace far::heap {
namespace {

backend::faulty_backend* last = nullptr;

}  // namespace

backend::faulty_backend& failing_tier() {
  FAR_CHECK(last != nullptr, "a far tier has been opened");
  return *last;
}

}  // namespace far::heap

namespace far::backend {

// In the place of open.cc's, which the linker then leaves out. A failure says that the bytes are gone, so nobody is
// patient with it.
result<std::unique_ptr<backend>> open(std::string_view /*name*/) {
  const result<uri> plain = uri::parse("memory:");
  if (!plain) return plain.error();
  result<std::unique_ptr<backend>> inner = memory_backend::open(plain.value());
  if (!inner) return inner.error();
  auto failing = std::make_unique<faulty_backend>(std::move(inner).value(), faulty_options{.error_code = ESTALE});
  heap::last = failing.get();
  return std::unique_ptr<backend>(std::move(failing));
}

}  // namespace far::backend
