#include "far/detail/frame_join.h"
