// A plugin of functions: a memory server calls them on the pages that it holds.
//
//     c++ -std=c++20 -O2 -shared -fPIC -Iinclude examples/plugins/statistics.cc -o statistics.so
//     farheapd --memory 1G --plugin ./statistics.so
//
// docs/devices.md has a program that asks for them.
#include "statistics.h"

#include <far/plugin.h>

FAR_FUNCTION_PLUGIN(square_sum, largest_step)
