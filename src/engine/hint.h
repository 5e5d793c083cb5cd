// A statement of the program about a coming access, without the access; see far/hint.h.
#pragma once

namespace far::engine {

struct hint {
  bool write = false;
  bool sequential = false;   // the next pages will be wanted soon, if there is a read-ahead
  bool prefetch = false;     // later: nobody waits
  bool overwrite = false;    // as a whole, before anybody reads there
  int read_ahead_pages = 0;  // from the first missing page on, or before it if negative; at most 64
  unsigned eviction_priority = 0;
};

}  // namespace far::engine
