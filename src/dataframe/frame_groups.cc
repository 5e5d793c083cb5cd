#include "far/detail/frame_groups.h"
