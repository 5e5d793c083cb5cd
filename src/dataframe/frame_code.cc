#include "far/detail/frame_code.h"
