// Distances on the earth.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

namespace taxi {

constexpr double radians(double degrees) {
  return degrees * (std::numbers::pi / 180);
}

// By the haversine formula, in radians, on a sphere.
inline double distance_km(double longitude, double latitude, double other_longitude, double other_latitude) {
  constexpr double earth_radius_km = 6371;
  const double up = std::sin((other_latitude - latitude) / 2);
  const double across = std::sin((other_longitude - longitude) / 2);
  const double chord = up * up + std::cos(latitude) * std::cos(other_latitude) * across * across;
  return 2 * earth_radius_km * std::asin(std::sqrt(std::min(1.0, chord)));
}

}  // namespace taxi
