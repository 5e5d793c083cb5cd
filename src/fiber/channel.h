// A queue of bounded length between fibers and OS threads, mixed; any number of senders and receivers. Must lie in
// local memory (mutex.h); its items may be far. far::channel is the same for users.
#pragma once

#include "far/detail/channel.h"
#include "fiber/condition_variable.h"
#include "fiber/mutex.h"

namespace far::fiber {

template <typename T>
using channel = detail::basic_channel<T, mutex, condition_variable>;

}  // namespace far::fiber
