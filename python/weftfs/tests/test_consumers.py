"""Libraries that use file systems by fsspec."""

from __future__ import annotations

import fsspec
import pytest


def test_pandas(url: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"number": range(10_000), "word": ["x", "yy"] * 5000})
    frame.to_csv(f"{url}/d/table.csv", index=False)
    pandas.testing.assert_frame_equal(pandas.read_csv(f"{url}/d/table.csv"), frame)
    frame.to_parquet(f"{url}/d/table.parquet")
    read = pandas.read_parquet(f"{url}/d/table.parquet", columns=["number"])
    assert read["number"].sum() == frame["number"].sum()


def test_pyarrow(url: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    dataset = pytest.importorskip("pyarrow.dataset")
    parquet = pytest.importorskip("pyarrow.parquet")
    fs, path = fsspec.url_to_fs(f"{url}/data")
    table = pyarrow.table({"year": [2025, 2025, 2026], "value": [1, 2, 3]})
    parquet.write_to_dataset(table, path, partition_cols=["year"], filesystem=fs)
    read = dataset.dataset(path, filesystem=fs, partitioning="hive").to_table(filter=dataset.field("year") == 2026)
    assert read["value"].to_pylist() == [3]
    with fs.open("/memory.arrow", "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    with fs.open("/memory.arrow") as file:
        assert pyarrow.ipc.open_file(file).read_all().equals(table)


def test_duckdb(url: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    fs, _ = fsspec.url_to_fs(url)
    with duckdb.connect() as base:
        base.register_filesystem(fs)
        base.execute(f"copy (select range as n from range(50000)) to '{url}/n.parquet' (format parquet)")
        assert base.execute(f"select sum(n), count(*) from '{url}/n.parquet'").fetchone() == (1249975000, 50000)
        fs.pipe("/words.csv", b"word,count\na,1\nb,2\n")
        assert base.execute(f"select max(count) from read_csv('{url}/*.csv')").fetchone() == (2,)


def test_zarr(url: str) -> None:
    zarr = pytest.importorskip("zarr")
    numpy = pytest.importorskip("numpy")
    written = numpy.arange(1_000_000, dtype="i4").reshape(1000, 1000)
    array = zarr.create_array(f"{url}/store.zarr", shape=written.shape, chunks=(250, 250), dtype="i4")
    array[:] = written
    read = zarr.open_array(f"{url}/store.zarr", mode="r")
    assert (read[100:200, 5] == written[100:200, 5]).all() and read[:].sum() == written.sum()
    group = zarr.open_group(f"{url}/group.zarr", mode="w")
    group.create_array("x", data=written[0])
    assert sorted(zarr.open_group(f"{url}/group.zarr", mode="r").array_keys()) == ["x"]


def test_urls_can_be_chained_and_cached(url: str) -> None:
    with fsspec.open(f"{url}/archive.zip", "wb") as file:
        import zipfile

        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("inside/f", "zipped")
    with fsspec.open(f"zip://inside/f::{url}/archive.zip", "r") as file:
        assert file.read() == "zipped"
    with fsspec.open(f"simplecache::{url}/archive.zip") as file:
        assert file.read(2) == b"PK"
