// Seconds since 1970 as dates and hours.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <string>

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

// As the data set writes times: 2016-03-14 17:24:55.
inline std::string text_of(local_seconds time) {
  const std::chrono::year_month_day date = date_of(time);
  const local_seconds second = time - std::chrono::sys_days(date).time_since_epoch().count() * local_seconds{86400};
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}", int{date.year()}, unsigned{date.month()},
                     unsigned{date.day()}, second / 3600, second / 60 % 60, second % 60);
}

}  // namespace taxi
