"""Modules of the standard library that allocate in C, with threads and child processes."""

import concurrent.futures
import ctypes
import gc
import hashlib
import json
import multiprocessing
import re
import sqlite3
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
import zlib


def work(number):
    data = {f"key {at}": list(range(at % 50)) for at in range(500 + number)}
    assert json.loads(json.dumps(data)) == data
    text = " ".join(data)
    assert len(re.findall(r"key (\d+)", text)) == len(data)
    assert zlib.decompress(zlib.compress(text.encode())) == text.encode()
    database = sqlite3.connect(":memory:")
    database.execute("create table t (a, b)")
    database.executemany("insert into t values (?, ?)", ((key, len(value)) for key, value in data.items()))
    assert database.execute("select count(*) from t").fetchone()[0] == len(data)
    root = ElementTree.Element("root")
    for key in data:
        ElementTree.SubElement(root, "item", name=key)
    assert len(ElementTree.fromstring(ElementTree.tostring(root))) == len(data)
    return hashlib.sha256(text.encode()).hexdigest()


def main():
    numbers = range(20)
    expected = [work(number) for number in numbers]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, numbers)) == expected
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert pool.map(work, numbers) == expected
    assert subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, check=True).stdout == b"1\n"
    buffer = ctypes.create_string_buffer(1 << 20)
    assert len(buffer.raw) == 1 << 20
    gc.collect()


if __name__ == "__main__":
    main()
