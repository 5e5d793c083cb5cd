#include "far/detail/csv_code.h"
