"""A file of Parquet becomes a far::dataframe: PyArrow reads it, batch by batch, and C++ (parquet.cc) groups it.

    make examples
    python3 examples/parquet.py build/bin/examples/parquet.so trips.parquet vendor km [FAR-TIER]
"""

import ctypes
import sys

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
pointer_in.restype, pointer_in.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


class Batch:
    """Room for a batch that C++ fills in, which PyArrow takes over (Arrow's PyCapsule interface)."""

    def __init__(self):
        self.schema = ctypes.create_string_buffer(72)  # sizeof(ArrowSchema)
        self.array = ctypes.create_string_buffer(80)

    def __arrow_c_array__(self, requested_schema=None):
        return (new_capsule(ctypes.addressof(self.schema), b"arrow_schema", None),
                new_capsule(ctypes.addressof(self.array), b"arrow_array", None))


def main(library, path, key, value, far_tier="memory:"):
    # Before PyArrow, whose libraries take the room for thread-local data that the system keeps for those to come
    # (docs/install.md).
    group_far = ctypes.CDLL(library).group_far
    group_far.restype = ctypes.c_char_p
    import pyarrow
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        # Only the columns in use, and no more of the file than a batch at a time.
        batches = file.iter_batches(batch_size=65536, columns=[key, value])
        schema = pyarrow.schema([file.schema_arrow.field(name) for name in file.schema_arrow.names if name in (key, value)])
        stream = pyarrow.RecordBatchReader.from_batches(schema, batches).__arrow_c_stream__()
        groups = Batch()
        failure = group_far(ctypes.c_void_p(pointer_in(stream, b"arrow_array_stream")), far_tier.encode(), key.encode(),
                            value.encode(), groups.schema, groups.array)
    if failure is not None:
        sys.exit(failure.decode())
    for row in pyarrow.record_batch(groups).to_pylist():
        print(f"{row[key]}: {row[value + '_count']} values, mean {row[value + '_mean']}")


if __name__ == "__main__":
    if len(sys.argv) not in (5, 6):
        sys.exit(__doc__)
    main(*sys.argv[1:])
