// The build that this program is, for code that all of its builds share.
#pragma once

namespace apps {

extern const bool has_hints;

}  // namespace apps
