"""Views point into their source buffer, or into decompressed bytes, and keep references to both as long as needed."""

import gc
import mmap
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

from klog.errors import CorruptBatch
from klog.record import ArrowStream, columns, decode, encode
from tests.support.resources import held

T = 1_700_000_000_000
VALUE = b"a value that does not fit into a view"
PLAIN = encode([(b"key", VALUE, T), (None, b"", T), (b"k" * 13, None, T)] * 3)
PACKED = encode([(b"k", VALUE * 3, T)] * 3, base_offset=9, compression="zstd")


def buffers(array: pa.Array) -> list[pa.Buffer]:
    return [buffer for buffer in array.buffers()[2:] if buffer is not None]


@pytest.mark.parametrize("size", range(40))
def test_short_values_are_inlined_in_the_view(size: int) -> None:
    """Also at the very end of the payload: no bytes after it are read."""
    records = [(bytes(range(200, 200 + size)), bytes(range(100, 100 + size)), T)] * 3
    views = pa.record_batch(columns(encode(records), fields=["key", "value"], views=True))
    views.validate(full=True)
    assert views.to_pylist() == [{"key": key, "value": value} for key, value, _ in records]
    # Equal bytes make equal views, so views can be compared and hashed: padding after short ones is zero.
    raw = views["value"].buffers()[1].to_pybytes()
    if size <= 12:
        assert raw[:16] == raw[16:32] == raw[32:48] == size.to_bytes(4, "little") + records[0][1].ljust(12, b"\0")


def test_the_bytes_are_those_of_the_source() -> None:
    source = bytearray(PLAIN)
    value = pa.record_batch(columns(source, views=True))["value"]
    assert value[0].as_py() == VALUE
    at = source.index(VALUE)
    source[at + 20 : at + 23] = b"new"
    assert value[0].as_py() == VALUE[:20] + b"new" + VALUE[23:]


def test_the_source_cannot_be_resized_while_a_view_lives() -> None:
    source = bytearray(PLAIN)
    result = columns(source, views=True)
    assert held(source)
    batch = pa.record_batch(result)
    del result
    assert held(source)
    value = batch["value"]
    del batch
    assert held(source)
    assert value[0].as_py() == VALUE
    del value
    assert not held(source)


def test_a_mapping_cannot_be_closed_under_a_view(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(PLAIN)
    with (tmp_path / "log").open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    value = pa.record_batch(columns(mapped, views=True))["value"].slice(3, 2)
    with pytest.raises(BufferError):
        mapped.close()
    assert value.to_pylist() == [VALUE, b""]
    del value
    mapped.close()


def test_copies_hold_nothing() -> None:
    source = bytearray(PLAIN + PACKED)
    batch = pa.record_batch(columns(source))
    assert not held(source)
    assert batch["value"][0].as_py() == VALUE


def test_every_share_is_released() -> None:
    before = sys.getrefcount(PLAIN)
    for _ in range(20):
        result = columns(PLAIN, views=True)
        schema, array = result.__arrow_c_array__()
        again = result.__arrow_c_array__()
        assert sys.getrefcount(PLAIN) == before + 1  # one reference, however many shares
        del result, schema, array, again
    assert sys.getrefcount(PLAIN) == before


def test_an_error_releases_the_source() -> None:
    source = bytearray(PLAIN + PLAIN[:-1] + b"x" + PLAIN)
    with pytest.raises(CorruptBatch, match="checksum"):
        columns(source, views=True)
    gc.collect()
    assert not held(source)


def test_decompressed_bytes_outlive_their_batch() -> None:
    data = bytearray(PLAIN + PACKED + PLAIN + PACKED)
    batch = pa.record_batch(columns(data, views=True))
    batch.validate(full=True)
    plain = pa.record_batch(columns(data))
    assert batch.to_pylist() == plain.to_pylist()
    # The source, and the decompressed bytes of two batches; after each the views continue in the source.
    assert len(buffers(batch["value"])) == 3


def test_the_last_release_may_come_from_any_thread() -> None:
    sources = [bytearray(PLAIN) for _ in range(50)]
    tables = [pa.table(ArrowStream([columns(source, views=True)], views=True)) for source in sources]
    assert all(map(held, sources))
    threads = [threading.Thread(target=lambda part=tables[i::4]: part.clear()) for i in range(4)]
    tables.clear()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del threads, thread
    gc.collect()
    assert not any(map(held, sources))


def test_views_may_outlive_python() -> None:
    """At the exit of the interpreter, some views are released when the GIL can no longer be taken."""
    program = """
import sys, threading, time
import pyarrow
from klog.record import columns, encode

data = bytearray(encode([(bytes(20), bytes(100), 1)] * 10))
sys.kept = pyarrow.record_batch(columns(data, views=True))
late = [pyarrow.record_batch(columns(data, views=True))]
threading.Thread(target=lambda: (time.sleep(0.05), late.clear()), daemon=True).start()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_stream_has_copies_or_views() -> None:
    with pytest.raises(pa.ArrowInvalid, match="views"):
        pa.table(ArrowStream([columns(PLAIN, views=True)]))
    with pytest.raises(pa.ArrowInvalid, match="views"):
        pa.table(ArrowStream([columns(PLAIN)], views=True))


def test_no_rows() -> None:
    batch = pa.record_batch(columns(b"", views=True))
    batch.validate(full=True)
    assert batch.num_rows == 0
    assert batch.schema.field("key").type == pa.binary_view()


def test_nbytes_are_those_of_the_views() -> None:
    count = sum(batch.count for batch in decode(PLAIN))
    assert columns(PLAIN, fields=["value"], views=True).nbytes == 16 * count + (count + 7) // 8
