// The plugin of `farheap-bench offload`.
#include "far/plugin.h"
#include "square_sum.h"

FAR_FUNCTION_PLUGIN(far::bench::square_sum)
