// A function of any type, for as long as a call lasts.
#pragma once

#include <concepts>

namespace far::detail {

// Refers to a function that outlives it. A compiler reads code that takes a visitor once, and a template anew for each
// function that it is given.
template <typename... Arguments>
class visitor {
 public:
  template <std::invocable<Arguments...> Visit>
  explicit visitor(const Visit& visit)
      : function_(&visit), call_([](const void* function, Arguments... arguments) {
          (*static_cast<const Visit*>(function))(arguments...);
        }) {}

  void operator()(Arguments... arguments) const { call_(function_, arguments...); }

 private:
  const void* function_;
  void (*call_)(const void* function, Arguments... arguments);
};

}  // namespace far::detail
