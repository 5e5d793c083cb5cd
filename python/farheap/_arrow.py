"""Arrow tables in far memory."""

from typing import Any, Optional, Union

from ._errors import FarheapError
from ._memory import memory


def far_table(data: Any, local: Union[str, int, None] = None, far: Optional[str] = None) -> Any:
    """A copy of an Arrow table whose buffers lie in far memory, made batch by batch.

    `data`: a ``pyarrow.Table``, or a ``RecordBatchReader``, of which one batch at a time is elsewhere: so a file that does
    not fit into local memory can be read. `local` and `far` are those of :func:`memory`. Batches below 64 KiB stay local.
    """
    try:
        import numpy
        import pyarrow
    except ImportError as error:
        raise FarheapError(f"far_table() needs NumPy and pyarrow: {error}; install them with: pip install numpy pyarrow") from error
    if not isinstance(data, (pyarrow.Table, pyarrow.RecordBatchReader)):
        raise TypeError(f"far_table() takes a pyarrow Table or RecordBatchReader, not {type(data).__name__}")
    reader = data.to_reader() if isinstance(data, pyarrow.Table) else data

    def move(batch: Any) -> Any:
        measured = pyarrow.MockOutputStream()
        write(measured, batch)
        with memory(local=local, far=far):
            place = numpy.empty(measured.size(), numpy.uint8)
        write(pyarrow.FixedSizeBufferWriter(pyarrow.py_buffer(place)), batch)
        return next(iter(pyarrow.ipc.open_stream(pyarrow.py_buffer(place))))

    def write(sink: Any, batch: Any) -> None:
        with pyarrow.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)

    return pyarrow.Table.from_batches([move(batch) for batch in reader], reader.schema)
