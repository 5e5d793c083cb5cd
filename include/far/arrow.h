// far::dataframe to and from Arrow's C data interface (https://arrow.apache.org/docs/format/CDataInterface.html): two
// plain structs by which libraries in one process hand tables to each other, among them readers of Parquet
// (docs/dataframe.md).
#pragma once

#include <cstddef>

#include "far/dataframe.h"
#include "far/detail/api.h"
#include "far/detail/arrow_structs.h"

namespace far {

// Copies rows to local memory, as an array of structs ("+s") with a child for each column: "l", "g", "b", "tss:", and
// of texts a dictionary of "u" with indices "i". A table larger than local memory is exported some rows at a time. The
// caller owns both structs, and calls their release(). Throws std::out_of_range, std::invalid_argument when a text of
// the dictionary, also one that no row has any more, is not UTF-8, which "u" promises, and std::length_error when the
// dictionary of a column is larger than 2 GiB.
FAR_API void export_to_arrow(const dataframe& from, std::size_t first, std::size_t count, ArrowSchema& schema,
                             ArrowArray& array);

// Appends the rows of an array of structs to a frame, which gets the columns first if it has none; otherwise they have
// the same names and types in the same order. Become int64: integers of 8 to 64 bits; float64: floating point of 16 to
// 64 bits; boolean: booleans; time: timestamps of all units, taken as UTC, and dates; text: texts of all layouts, plain
// or in a dictionary. Takes over neither struct. Throws std::invalid_argument, which names column and type, when a
// column has another type or the name of another, a dictionary has no text of an index, or the structs cannot be right:
// released, without buffers, with lengths, offsets or null counts that cannot be, with fewer rows in a column than in
// the table, or a text whose offsets are none. How long buffers are, the structs do not say, but for texts as views.
// Throws std::range_error when a value fits into no cell: a uint64 from 2^63 on, an int64 that stands for null, a time
// with a fraction of a second. Rows before such a value, or such a text, are then there.
FAR_API void import_from_arrow(const ArrowSchema& schema, const ArrowArray& array, dataframe& to);

// Likewise all batches of a stream, one at a time, so that a file larger than local memory comes in; the columns come
// before the first of them, also where there is none. Releases the batches, and not the stream. Throws
// std::runtime_error with the message of a stream that fails; batches before that are then there.
FAR_API void import_from_arrow(ArrowArrayStream& from, dataframe& to);

}  // namespace far

#if defined(FARHEAP_CHECKED)
#include "far/detail/arrow_code.h"
#endif
