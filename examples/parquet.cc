// A table of Parquet in far memory: the part in C++ of parquet.py, which has it read by PyArrow.
//
// Arrow's C stream interface is a struct that both know, so neither needs the other's headers or libraries. Batches
// come in one at a time: neither the file nor the table has to fit in local memory.
#include <cstddef>
#include <exception>
#include <string>

#include "far/arrow.h"
#include "far/dataframe.h"
#include "far/runtime.h"

// Groups of `table` by the column `key`, with the count and the mean of the column `value`, as one batch. The caller
// releases all three structs. Returns null, or what went wrong; then there are no `groups`.
extern "C" __attribute__((visibility("default"))) const char* group_far(ArrowArrayStream* table, const char* far_tier,
                                                                        const char* key, const char* value,
                                                                        ArrowSchema* schema, ArrowArray* groups) try {
  far::runtime farheap({.local_bytes = std::size_t{32} << 20, .far = far_tier});
  far::dataframe all(farheap);
  far::import_from_arrow(*table, all);
  const far::dataframe grouped = all.group_by({key}, {{value, far::aggregate::count}, {value, far::aggregate::mean}});
  far::export_to_arrow(grouped, 0, grouped.rows(), *schema, *groups);
  return nullptr;
} catch (const std::exception& refused) {
  // Nothing crosses an interface of C as an exception. Valid until the thread's next call.
  static thread_local std::string why;
  why = refused.what();
  return why.c_str();
}
