// A tag that belongs to one object, and is given back with it.
#pragma once

#include <utility>

#include "far/tag.h"

namespace far::detail {

// A member or an argument of this type gives the tag back also when a constructor throws.
class own_tag {
 public:
  explicit own_tag(const tag& taken) : tag_(taken) {}
  own_tag(own_tag&& other) noexcept : tag_(other.tag_), is_owner_(std::exchange(other.is_owner_, false)) {}
  own_tag& operator=(own_tag&&) = delete;
  ~own_tag() {
    if (is_owner_) tag_.give_back();
  }

  [[nodiscard]] const tag& get() const noexcept { return tag_; }

 private:
  tag tag_;
  bool is_owner_ = true;
};

}  // namespace far::detail
