// The version of Farheap that these headers belong to. The build reads it from here; nothing else states it.
#pragma once

// Major, minor, patch. Before 1.0 a new minor version may change any interface.
#define FAR_VERSION_MAJOR 0
#define FAR_VERSION_MINOR 1
#define FAR_VERSION_PATCH 0

#define FAR_VERSION_TEXT_OF_(x) #x
#define FAR_VERSION_TEXT_OF(x) FAR_VERSION_TEXT_OF_(x)

// "0.1.0", a string literal.
#define FAR_VERSION_TEXT                 \
  FAR_VERSION_TEXT_OF(FAR_VERSION_MAJOR) \
  "." FAR_VERSION_TEXT_OF(FAR_VERSION_MINOR) "." FAR_VERSION_TEXT_OF(FAR_VERSION_PATCH)
