// Messages of farheapd to the service manager that has started it, if there is one (sd_notify(3)): systemd, and others
// that speak its protocol.
#pragma once

#include <string_view>

#include "base/result.h"

namespace far::server {

// Sends "READY=1" and the like to the socket that NOTIFY_SOCKET names; does nothing where there is none. Errors: the
// socket cannot be reached.
[[nodiscard]] result<void> tell_service_manager(std::string_view state);

}  // namespace far::server
