// Chooses the fault mode of this process: the requested one, or one that the kernel, a container and the user's rights
// permit.
#pragma once

#include <optional>

#include "base/result.h"
#include "pager/pager.h"
#include "platform/kernel_features.h"

namespace far::preload {

struct fault_mode_choice {
  pager::fault_mode mode = pager::fault_mode::thread;
  const char* why_not_asked = nullptr;  // when it is not the requested mode: the reason, and the remedy
  const char* risk = nullptr;           // a thing that the program must not do in it, on this kernel
};

// `asked`: nullopt for the default, which is the thread mode; but the inline mode on kernels that move pages away under
// devices that write to them, because only there such uses are seen (docs/decisions/0021-dma-without-move.md). An error
// says why there can be no far memory at all, and what to do about it.
[[nodiscard]] result<fault_mode_choice> choose_fault_mode(const platform::kernel_features& features,
                                                          std::optional<pager::fault_mode> asked);

}  // namespace far::preload
