#include "far/detail/arrow_code.h"
