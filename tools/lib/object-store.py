"""Moves parts of traces to an S3 server and back under failures, and compares them. Started by tools/object-store.sh.

The store is read with boto3, and rows are compared by DuckDB: independently of Brunt.

    object-store.py BRUNT SERVER PYTHON      SERVER is the program moto_server or versitygw; PYTHON has DuckDB's extensions
"""

import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import boto3
import botocore
import duckdb

BRUNT, SERVER, PYTHON = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
SMALL_CAPTURE = Path("testdata/nfs4-small.pcap.zst")
REPEATS = 15
MARK = "_brunt-lake.json"
SMALL = ["--part-size", "16KiB"]
BUCKET = "lake"
SEED = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
chance = random.Random(SEED)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """An S3 server on this machine."""

    def __init__(self, folder):
        self.folder, self.port, self.process = folder, free_port(), None
        self.is_moto = "moto" in SERVER.name
        (folder / "data").mkdir()
        self.start()

    def start(self):
        if self.is_moto:
            words = [SERVER, "-H", "127.0.0.1", "-p", str(self.port)]
        else:
            words = [SERVER, "--access", "tester", "--secret", "secret-of-tester", "--port", f"127.0.0.1:{self.port}", "--quiet",
                     "posix", self.folder / "data"]
        log = open(self.folder / "server.log", "ab")
        self.process = subprocess.Popen(words, stdout=log, stderr=log)
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                assert self.process.poll() is None, (self.folder / "server.log").read_text()
                time.sleep(0.1)
        raise AssertionError("the server does not listen")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)


class Link:
    """A connection to the server that can be cut and slowed down."""

    def __init__(self, port):
        self.to, self.is_cut, self.pause_s, self.sockets, self.refused = port, False, 0.0, set(), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            near, _ = self.listener.accept()
            if self.is_cut:
                self.refused += 1
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                near.close()
                continue
            self.sockets |= {near, far}
            for ends in [(near, far), (far, near)]:
                threading.Thread(target=self.pump, args=ends, daemon=True).start()

    def pump(self, source, sink):
        try:
            while data := source.recv(1 << 16):
                time.sleep(self.pause_s)
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            self.sockets.discard(end)
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        self.is_cut = True
        for end in list(self.sockets):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def mend(self):
        self.is_cut = False


work = Path(tempfile.mkdtemp(prefix="object-store-"))
server = Server(work)
link = Link(server.port)
direct = boto3.client(
    "s3", endpoint_url=f"http://127.0.0.1:{server.port}", region_name="us-east-1", aws_access_key_id="tester",
    aws_secret_access_key="secret-of-tester", config=botocore.config.Config(s3={"addressing_style": "path"}))
CAPTURE = work / "large.pcap"
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith("AWS_") and not name.lower().endswith("_proxy")}
ENVIRONMENT |= {"AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "secret-of-tester", "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{link.port}", "AWS_ALLOW_HTTP": "true",
                "BRUNT_PYTHON": PYTHON, "PATH": os.environ["PATH"]}
ENVIRONMENT.pop("BRUNT_DUCKDB", None)


def brunt(*words, expect=0, **environment):
    """Runs brunt; returns its JSON, and its messages."""
    done = subprocess.run([BRUNT, "--json", *map(str, words)], env=ENVIRONMENT | environment, capture_output=True, text=True)
    said = f"brunt {' '.join(map(str, words))}: {done.returncode}\n{done.stderr}\n{done.stdout[:2000]}"
    assert done.returncode == expect, said
    return json.loads(done.stdout), said


def write_capture():
    """Writes a capture large enough for many parts: the small one repeated, each time ten seconds later and for other hosts."""
    small = work / "small.pcap"
    brunt("capture", "-r", SMALL_CAPTURE, "--pcap", small)
    content, at, records = small.read_bytes(), 24, []
    while at < len(content):
        seconds, fraction, captured, length = struct.unpack_from("<4I", content, at)
        records.append((seconds, fraction, length, content[at + 16:at + 16 + captured]))
        at += 16 + captured
    with open(CAPTURE, "wb") as large:
        large.write(content[:24])
        for repeat in range(REPEATS):
            for seconds, fraction, length, packet in records:
                packet = bytearray(packet)
                assert packet[12:14] == b"\x08\x00", "IPv4 in Ethernet"
                packet[28] = packet[32] = repeat + 1  # the third byte of both addresses
                large.write(struct.pack("<4I", seconds + 10 * repeat, fraction, len(packet), length) + packet)


def start(*words, **pipes):
    return subprocess.Popen([BRUNT, "--json", *map(str, words)], env=ENVIRONMENT, stderr=subprocess.PIPE,
                            stdout=subprocess.PIPE, **pipes)


def objects(prefix):
    """The contents of the store: bytes by path below the prefix, without the mark."""
    found = {}
    for page in direct.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{prefix}/"):
        for entry in page.get("Contents", []):
            found[entry["Key"][len(prefix) + 1:]] = direct.get_object(Bucket=BUCKET, Key=entry["Key"])["Body"].read()
    found.pop(MARK, None)
    return found


def parts(folder):
    """The same for a folder."""
    files = [path for path in folder.rglob("*.parquet") if path.parent != folder]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def write(files, folder):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def one(question):
    return duckdb.connect().execute(question).fetchall()[0][0]


def same_rows(a, b):
    """Compares all tables of two folders, row by row, including the number of equal rows."""
    tables = sorted(path.name for path in a.iterdir() if path.is_dir())
    assert tables == sorted(path.name for path in b.iterdir() if path.is_dir())
    rows = 0
    for table in tables:
        count = one(f"select count(*) from '{a}/{table}/*.parquet'")
        # Tables of a lake also have integer twins of times.
        names = [row[0] for row in duckdb.connect().execute(f"describe from '{a}/{table}/*.parquet'").fetchall()]
        columns = ", ".join(f'"{name}"' for name in names)
        for left, right in [(a, b), (b, a)]:
            # Some rows cover the span between two batches of packets, which depends on how fast those arrive.
            summed = ", ".join(f'"{name}"' for name in names if name != "count")
            rows_of = {"latency_histograms": f'select {summed}, sum("count") from {{}} group by all',
                       "statistics": "select * exclude (tap) from (select " + columns
                       + " from {}) order by time desc, packets desc limit 1"}.get(table, f"select {columns} from {{}}")
            differ = one("select count(*) from ((" + rows_of.format(f"'{left}/{table}/*.parquet'") + ") except all ("
                         + rows_of.format(f"'{right}/{table}/*.parquet'") + "))")
            assert differ == 0, f"{table}: {differ} rows of {left} are not in {right}"
        rows += count
    return rows


def report(what, since):
    print(f"{time.monotonic() - since:5.1f} s  {what}", flush=True)


def feed(process, content, pieces, between):
    """Writes a capture to a process in pieces, and calls `between` with the number of each."""
    size = -(-len(content) // pieces)
    for number in range(pieces):
        process.stdin.write(content[number * size:(number + 1) * size])
        process.stdin.flush()
        between(number)
    process.stdin.close()
    process.stdin = None  # communicate() would flush it


def capture_moves_while_the_link_comes_and_goes(reference):
    def between(number):
        if number == 5:
            for _ in range(600):
                if seen := objects("live"):
                    moved_meanwhile.append(len(seen))
                    break
                time.sleep(0.1)
            link.cut()
            _, said = brunt("lake", "push", out, f"s3://{BUCKET}/live", expect=2)
            assert "in use" in said, said
        time.sleep(0.05)

    moved_meanwhile = []
    out = work / "live"
    process = start("capture", "-r", "-", "--out", out, "--to", f"s3://{BUCKET}/live", *SMALL, stdin=subprocess.PIPE)
    feed(process, PACKETS, 12, between)
    # All packets were read without a connection. The parts are here, and the capture waits only for the connection.
    for _ in range(600):
        if link.refused > 1:
            break
        time.sleep(0.1)
    assert process.poll() is None and parts(out), "parts stay while the link is cut"
    link.mend()
    said, told = process.communicate(timeout=300)
    assert process.returncode == 0, told.decode()
    moved = json.loads(said)["moved"]
    assert moved_meanwhile, "parts are moved while the capture runs"
    assert moved["retries"] > 0 and moved["parts_waiting"] == moved["parts_refused"] == 0, moved
    there = objects("live")
    assert moved["parts_moved"] + moved["parts_found"] == len(there), (moved, len(there))
    assert not parts(out), "all are gone from here"
    rows = same_rows(reference, write(there, work / "live-objects"))
    # Another capture to the same folder, or to the same address, would mix two traces.
    brunt("capture", "-r", CAPTURE, "--out", out, "--to", f"s3://{BUCKET}/other", expect=2)
    _, said = brunt("capture", "-r", CAPTURE, "--out", work / "other", "--to", f"s3://{BUCKET}/live", expect=2)
    assert "has the parts of another trace" in said, said
    assert objects("live") == there
    return f"a capture with the link cut and mended: {moved_meanwhile[0]} parts moved before its end, {len(there)} in all, " \
           f"{rows} rows, {moved['retries']} retries"


def killed_captures_lose_nothing_that_was_written():
    left_here = moved_before = 0
    for attempt in range(6):
        out, prefix = work / f"killed-{attempt}", f"killed-{attempt}"
        process = start("capture", "-r", "-", "--out", out, "--to", f"s3://{BUCKET}/{prefix}", *SMALL, "--flush", "100ms",
                        stdin=subprocess.PIPE)
        last = chance.randrange(3, 12)

        def between(number):
            time.sleep(chance.random() * 0.2)
            if number == last:
                process.kill()

        try:
            feed(process, PACKETS, 12, between)
        except BrokenPipeError:
            pass
        process.communicate()
        here, there = parts(out), objects(prefix)
        for name in here.keys() & there.keys():
            assert here[name] == there[name], f"{name} differs"
        left_here, moved_before = left_here + len(here), moved_before + len(there)
        brunt("lake", "push", out, f"s3://{BUCKET}/{prefix}")
        assert objects(prefix) == here | there and not parts(out)
    return f"6 captures killed: {moved_before} parts were there, {left_here} here; pushed, all are there, byte for byte"


def a_push_killed_many_times(reference):
    want, folder = parts(reference), work / "push"
    for keep in [[], ["--keep-local"]]:
        shutil.rmtree(folder, ignore_errors=True)
        write(want, folder)
        prefix, kills = "pushed" + "".join(keep), 0
        link.pause_s = 0.003
        while kills < 15:
            process = start("lake", "push", folder, f"s3://{BUCKET}/{prefix}", *keep)
            try:
                process.communicate(timeout=0.03 + chance.random() * 0.4)
                assert process.returncode == 0
                break
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                kills += 1
            if kills % 5 == 0:
                here, there = parts(folder), objects(prefix)
                assert here | there == want and there | here == want
        if not server.is_moto:
            server.kill()
            server.start()
        link.pause_s = 0.0
        (answer, _) = brunt("lake", "push", folder, f"s3://{BUCKET}/{prefix}", *keep)
        assert objects(prefix) == want and parts(folder) == (want if keep else {})
        if keep:
            assert answer["moved"]["parts_moved"] + answer["moved"]["parts_found"] == len(want), answer
    return f"two pushes of {len(want)} parts, killed up to 15 times each: all there, once, byte for byte"


def a_silent_server(reference):
    want, folder = parts(reference), write(parts(reference), work / "silent")
    server.pause() if server.is_moto else server.kill()
    _, said = brunt("lake", "push", folder, f"s3://{BUCKET}/silent", "--wait", "2s", expect=1, AWS_TIMEOUT="1s")
    assert "brunt lake push" in said and parts(folder) == want, said
    # A capture starts and ends anyway.
    out = work / "silent-capture"
    answer, said = brunt("capture", "-r", CAPTURE, "--out", out, "--to", f"s3://{BUCKET}/silent-capture", "--to-wait", "2s",
                         *SMALL, expect=1, AWS_TIMEOUT="1s")
    assert answer["moved"]["parts_waiting"] == len(parts(out)) > 0, answer["moved"]
    assert f"brunt lake push {out} s3://{BUCKET}/silent-capture" in said, said
    same_rows(reference, out)
    server.go_on() if server.is_moto else server.start()
    brunt("lake", "push", folder, f"s3://{BUCKET}/silent")
    assert objects("silent") == want
    brunt("lake", "push", out, f"s3://{BUCKET}/silent-capture")
    same_rows(reference, write(objects("silent-capture"), work / "silent-objects"))
    return f"a server that is {'silent' if server.is_moto else 'killed'}: parts stay, and go when it is back"


def room_runs_out_without_a_link(reference):
    out, keep, to = work / "full", 300_000, f"s3://{BUCKET}/full"
    link.cut()
    process = start("capture", "-r", "-", "--out", out, "--to", to, "--to-wait", "1s", "--keep", keep, *SMALL,
                    stdin=subprocess.PIPE)
    feed(process, PACKETS, 12, lambda _: time.sleep(0.15))
    said, told = process.communicate(timeout=300)
    answer, here = json.loads(said), parts(out)
    assert process.returncode == 1, told.decode()
    assert answer["trace"]["parts_deleted"] > 0 and answer["moved"]["parts_waiting"] == len(here), answer
    assert sum(map(len, here.values())) <= keep
    link.mend()
    brunt("lake", "push", out, to)
    assert objects("full") == here
    brunt("lake", "pull", to, work / "full-back")
    brunt("analyze", work / "full-back")
    return f"no link and no room: {answer['trace']['parts_deleted']} parts deleted and counted, the other {len(here)} moved later"


def other_content_is_refused(reference):
    folder = write(parts(reference), work / "conflict")
    brunt("lake", "push", folder, f"s3://{BUCKET}/conflict", "--keep-local")
    name = sorted(parts(folder))[3]
    other = bytearray(parts(folder)[name])
    other[7] ^= 1
    direct.put_object(Bucket=BUCKET, Key=f"conflict/{name}", Body=bytes(other))
    answer, said = brunt("lake", "push", folder, f"s3://{BUCKET}/conflict", expect=1)
    assert answer["moved"]["parts_refused"] == 1 and f"s3://{BUCKET}/conflict/{name}" in said, said
    assert list(parts(folder)) == [name] and objects("conflict")[name] == bytes(other)
    # A local file isn't replaced either.
    _, said = brunt("lake", "pull", f"s3://{BUCKET}/conflict", folder, expect=1)
    assert name in said and parts(folder)[name] != bytes(other)
    return "an object with one other bit: refused by name both ways, neither end changed"


def large_parts_go_in_pieces():
    folder = work / "large"
    (folder / "t").mkdir(parents=True)
    duckdb.connect().execute(f"copy (select random() a, random() b from range(2_000_000)) to '{folder}/t/part-000000.parquet' "
               "(compression uncompressed)")
    want = parts(folder)
    size, = map(len, want.values())
    assert size > 24 << 20, size
    link.pause_s = 0.002
    process = start("lake", "push", folder, f"s3://{BUCKET}/large")
    time.sleep(0.7)
    link.cut()
    time.sleep(0.3)
    link.mend()
    link.pause_s = 0.0
    said, told = process.communicate(timeout=300)
    assert process.returncode == 0, told.decode()
    moved = json.loads(said)["moved"]
    assert objects("large") == want and moved["bytes_read_back"] == 0, moved
    etag = direct.head_object(Bucket=BUCKET, Key="large/t/part-000000.parquet")["ETag"]
    assert etag.endswith(f"-{-(-size // (8 << 20))}\""), etag
    # The same object in other pieces: its ETag can't be compared, so it is read back.
    write(want, folder)
    half = size // 2
    key = {"Bucket": BUCKET, "Key": "large/t/part-000000.parquet"}
    upload = direct.create_multipart_upload(**key)["UploadId"]
    content, = want.values()
    pieces = [direct.upload_part(**key, UploadId=upload, PartNumber=number, Body=piece)["ETag"]
              for number, piece in enumerate([content[:half], content[half:]], 1)]
    direct.complete_multipart_upload(**key, UploadId=upload, MultipartUpload={
        "Parts": [{"ETag": tag, "PartNumber": number} for number, tag in enumerate(pieces, 1)]})
    answer, _ = brunt("lake", "push", folder, f"s3://{BUCKET}/large")
    assert answer["moved"]["bytes_read_back"] == size and answer["moved"]["parts_found"] == 1, answer
    return f"a part of {size >> 20} MiB in pieces over a link that is cut: {moved['retries']} retries; of other pieces: read back"


def fetched_traces_are_analyzed(reference):
    folder = work / "back"
    link.pause_s = 0.003
    kills = 0
    for _ in range(10):
        process = start("lake", "pull", f"s3://{BUCKET}/pushed", folder)
        try:
            process.communicate(timeout=0.1 + chance.random() * 0.3)
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
    link.pause_s = 0.0
    brunt("lake", "pull", f"s3://{BUCKET}/pushed", folder)
    assert parts(folder) == parts(reference)
    assert brunt("analyze", folder)[0] == brunt("analyze", reference)[0]
    # Push it back: it is the same lake, and all of it is there.
    answer, _ = brunt("lake", "push", folder, f"s3://{BUCKET}/pushed")
    assert answer["moved"]["parts_found"] == len(parts(reference)) and not parts(folder), answer
    return f"a trace fetched with {kills} kills: the same parts, and the same analysis"


def live(files):
    """The newest version of a lake among these files, including what was captured since: its number, and paths by table.
    Asserts that all of them exist."""
    versions = sorted(name for name in files if re.fullmatch(r"_catalog/v\d+\.json", name))
    if not versions:
        return None
    catalog = json.loads(files[versions[-1]])
    tables = {table: [part["path"] for part in of_table] for table, of_table in catalog["parts"].items()}
    own = next((tap for tap in catalog["taps"] if not tap["name"]), None)
    for name in files:
        if captured := re.fullmatch(r"(\w+)/part-(?:(\d+)-)?(\d+)\.parquet", name):
            table, series, number = captured[1], captured[2] or "0", int(captured[3])
            absorbed = (own["absorbed"].get(table, {}) if own else {}).get(series, {"next": 0})
            if number >= absorbed["next"]:
                tables.setdefault(table, []).append(name)
    missing = [name for names in tables.values() for name in names if name not in files]
    assert not missing, f"{versions[-1]} names what is not there: {missing}"
    return catalog["version"], tables


def lake_files(folder):
    names = [path for path in folder.rglob("*") if path.is_file() and path.suffix in (".parquet", ".json")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in names if path.name != MARK}


def same_lakes(folder, there):
    """Asserts that a lake here and its copy in the store have the same version and the same bytes."""
    here = lake_files(folder)
    assert live(here) == live(there), (live(here)[0], live(there) and live(there)[0])
    for names in live(here)[1].values():
        for name in names:
            assert here[name] == there[name], name
    return live(here)


def rows_of_lake(folder):
    """All rows of the newest version, in the form that same_rows expects: a folder of links for each table."""
    plain = Path(tempfile.mkdtemp(dir=work))
    for table, names in live(lake_files(folder))[1].items():
        if table != "taps":
            (plain / table).mkdir()
            for number, name in enumerate(names):
                (plain / table / f"{number}.parquet").symlink_to(folder / name)
    return plain


def push_with_kills(folder, to, kills_max, look):
    """Pushes until that completes, and calls `look` after each kill."""
    kills = 0
    link.pause_s = 0.002
    while kills < kills_max:
        process = start("lake", "push", folder, to)
        try:
            _, told = process.communicate(timeout=0.1 + chance.random() * 0.5)
            assert process.returncode == 0, told.decode()
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            look()
    link.pause_s = 0.0
    return brunt("lake", "push", folder, to)[0], kills


def asked_of_the_store(prefix, table):
    """Counts the rows of a table through its Delta Lake log, which DuckDB reads directly from the store."""
    script = """
import duckdb, glob, os, sys, duckdb_extension_delta, duckdb_extension_httpfs
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for package in (duckdb_extension_httpfs, duckdb_extension_delta):
    [extension] = glob.glob(os.path.dirname(package.__file__) + "/extensions/*/*.duckdb_extension")
    connection.execute(f"LOAD '{extension}'")
connection.execute(f"CREATE SECRET (TYPE s3, KEY_ID 'tester', SECRET 'secret-of-tester', REGION 'us-east-1', "
                   f"ENDPOINT '{sys.argv[1]}', URL_STYLE 'path', USE_SSL false)")
print(connection.execute(f"SELECT count(*), sum(record_id)::VARCHAR FROM delta_scan('{sys.argv[2]}')").fetchall()[0])
"""
    where = [f"127.0.0.1:{server.port}", f"s3://{BUCKET}/{prefix}/{table}"]
    done = subprocess.run([PYTHON, "-c", script, *where], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def a_lake_is_copied_version_by_version(reference):
    lake, to = work / "lake", f"s3://{BUCKET}/lake"
    looks = []
    taps = [["--tap", "one", "--part-size", "64KiB"], ["--tap", "two", "--part-size", "64KiB"]]

    def look():
        # Either a version with all its parts, or none yet.
        looks.append((live(objects("lake")) or [0])[0])

    kills = sent = 0
    for tap in taps:
        brunt("lake", "add", lake, reference, *tap, "--duplicate")
        brunt("lake", "manifest", lake)
        answer, more = push_with_kills(lake, to, 5, look)
        kills += more
        version, tables = same_lakes(lake, objects("lake"))
    # What the store already has is neither sent again nor read again here.
    answer, _ = brunt("lake", "push", lake, to)
    assert answer["moved"]["parts_moved"] == answer["moved"]["parts_found"] == answer["log_files_sent"] == 0, answer
    assert answer["parts_known"] == sum(map(len, tables.values())), answer
    # After a compaction unknown to the log, the parts that the log names stay. After a second compaction, the log
    # names parts that were never pushed.
    brunt("lake", "compact", lake, "--part-size", "1MiB", "--keep-old", "0s")
    answer, _ = brunt("lake", "push", lake, to)
    assert not answer["logs_left"] and asked_of_the_store("lake", "operations")
    brunt("lake", "manifest", lake)
    answer, _ = brunt("lake", "push", lake, to)
    assert not answer["logs_left"] and answer["log_files_sent"] > 0, answer
    same_lakes(lake, objects("lake"))
    question = "SELECT count(*) AS n, CAST(sum(record_id) AS VARCHAR) AS s FROM operations"
    row, = brunt("sql", lake, question)[0]["rows"]
    by_log = asked_of_the_store("lake", "operations")
    assert by_log == str((row["n"], row["s"])), (by_log, row)
    # Queried in the store, an analysis gives the same answer as here.
    for name in ["mix", "files", "ledger"]:
        assert brunt("sql", to, name)[0]["rows"] == brunt("sql", lake, name)[0]["rows"], name
    _, said = brunt("sql", to, "select nothing from operations", expect=2)
    assert "nothing" in said, said
    # Old versions are deleted on request, and the newest stays complete.
    before = objects("lake")
    answer, _ = brunt("lake", "push", lake, to, "--delete-old", "1h")
    assert answer["objects_deleted"] == 0 and objects("lake").keys() == before.keys(), answer
    answer, _ = brunt("lake", "push", lake, to, "--delete-old", "0s")
    after = objects("lake")
    _, tables = same_lakes(lake, after)
    left = {name for name in after if name.endswith(".parquet") and "_delta_log" not in name}
    assert answer["objects_deleted"] > 0 and left == {name for names in tables.values() for name in names}, answer
    assert asked_of_the_store("lake", "operations") == by_log
    # Pull it back, with kills: the same lake, which can be extended and pushed again.
    back = work / "lake-back"
    link.pause_s = 0.002
    for _ in range(4):
        process = start("lake", "pull", to, back)
        try:
            process.communicate(timeout=0.1 + chance.random() * 0.4)
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
    link.pause_s = 0.0
    brunt("lake", "pull", to, back)
    same_lakes(back, after)
    assert brunt("analyze", back)[0] == brunt("analyze", lake)[0]
    brunt("lake", "add", back, reference, "--tap", "three", "--duplicate")
    brunt("lake", "push", back, to)
    _, said = brunt("lake", "push", lake, to, expect=2)
    assert "lacks parts of the other" in said, said
    # The outdated folder catches up.
    brunt("lake", "pull", to, lake)
    same_lakes(lake, objects("lake"))
    assert max(looks, default=0) <= version, looks
    return f"a lake copied in versions, {kills} pushes killed: {len(left)} parts there, each version whole at any look, " \
           f"{row['n']} operations by its log from the store"


def a_capture_is_compacted_and_copied_while_it_runs(reference):
    out, to = work / "running", f"s3://{BUCKET}/running"
    versions = []

    def between(number):
        if number % 4 == 3:
            brunt("lake", "compact", out, "--part-size", "64KiB", "--keep-old", "0s")
            brunt("lake", "push", out, to)
            versions.append(live(objects("running"))[0])
        time.sleep(0.05)

    process = start("capture", "-r", "-", "--out", out, *SMALL, "--flush", "100ms", stdin=subprocess.PIPE)
    feed(process, PACKETS, 12, between)
    process.communicate(timeout=300)
    assert process.returncode == 0
    brunt("lake", "compact", out, "--part-size", "64KiB", "--keep-old", "0s")
    brunt("lake", "push", out, to)
    same_lakes(out, objects("running"))
    back = work / "running-back"
    brunt("lake", "pull", to, back)
    rows = same_rows(reference, rows_of_lake(back))
    # Not all parts of a moved trace are here, so it isn't compacted.
    moved = write(parts(reference), work / "moved")
    brunt("lake", "push", moved, f"s3://{BUCKET}/moved")
    _, said = brunt("lake", "compact", moved, expect=2)
    assert "brunt lake pull" in said, said
    brunt("lake", "pull", f"s3://{BUCKET}/moved", moved)
    brunt("lake", "compact", moved)
    return f"a capture compacted and copied while it ran: versions {versions} there, {rows} rows in the end, each once"


def mistakes_are_named(reference):
    folder = write(parts(reference), work / "mistakes")
    brunt("lake", "push", write(parts(reference), work / "another"), f"s3://{BUCKET}/another")
    for words, status, text, environment in [
        (["lake", "push", folder, "s3://nobody-made-this/x"], 2, "no such bucket", {}),
        (["lake", "push", folder, "gs://lake/x"], 2, "use s3://", {}),
        (["lake", "push", folder, f"s3://{BUCKET}/x"], 2, "AWS_ALLOW_HTTP", {"AWS_ALLOW_HTTP": "false"}),
        (["lake", "push", folder, f"s3://{BUCKET}/another"], 2, "another trace", {}),
        (["lake", "push", work / "nothing", f"s3://{BUCKET}/x"], 2, "no such folder", {}),
        (["lake", "pull", f"s3://{BUCKET}/empty", work / "empty"], 1, "has no parts", {}),
        (["capture", "-r", CAPTURE, "--out", work / "refused", "--to", "s3://nobody-made-this/x"], 2, "no such bucket", {}),
    ] + ([] if server.is_moto else [
        (["lake", "push", folder, f"s3://{BUCKET}/x"], 1, "access denied", {"AWS_SECRET_ACCESS_KEY": "wrong"}),
    ]):
        _, said = brunt(*words, expect=status, **environment)
        assert text in said, said
    assert parts(folder) == parts(reference) and not (work / "refused" / MARK).exists()
    return "mistakes are named"


def main():
    global PACKETS
    write_capture()
    PACKETS = CAPTURE.read_bytes()
    direct.create_bucket(Bucket=BUCKET)
    begun = time.monotonic()
    print(f"{SERVER.name}, seed {SEED}", flush=True)
    reference = work / "reference"
    brunt("capture", "-r", CAPTURE, "--out", reference, *SMALL)
    assert len(parts(reference)) > 40, len(parts(reference))
    steps = [capture_moves_while_the_link_comes_and_goes, killed_captures_lose_nothing_that_was_written,
             a_push_killed_many_times, a_silent_server, room_runs_out_without_a_link, other_content_is_refused,
             large_parts_go_in_pieces, fetched_traces_are_analyzed, a_lake_is_copied_version_by_version,
             a_capture_is_compacted_and_copied_while_it_runs, mistakes_are_named]
    if os.environ.get("BRUNT_STEPS") == "short":
        steps = [capture_moves_while_the_link_comes_and_goes, other_content_is_refused, mistakes_are_named]
    for step in steps:
        report(step(reference) if step.__code__.co_argcount else step(), begun)


try:
    main()
finally:
    server.process.kill()
    if not os.environ.get("KEEP"):
        shutil.rmtree(work, ignore_errors=True)
