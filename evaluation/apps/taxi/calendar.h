// Seconds since 1970 as dates and hours.
#pragma once

#include <chrono>

#include "trips.h"

namespace taxi {

inline std::chrono::year_month_day date_of(local_seconds time) {
  return std::chrono::floor<std::chrono::days>(std::chrono::sys_seconds(std::chrono::seconds(time)));
}

inline unsigned day_of(local_seconds time) {
  return unsigned{date_of(time).day()};
}  // 1 to 31
inline unsigned month_of(local_seconds time) {
  return unsigned{date_of(time).month()};
}  // 1 to 12

// 0 to 23.
inline unsigned hour_of(local_seconds time) {
  constexpr local_seconds day = 24 * 60 * 60;
  return static_cast<unsigned>(((time % day + day) % day) / 3600);
}

}  // namespace taxi
