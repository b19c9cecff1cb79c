"""URLs as sources and targets: fsspec's in-memory store, an S3-compatible server and web servers on loopback."""

import http.server
import io
import json
import os
import re
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from command_line import run_cli
from environment import TESTS

import mha_convert
from mha_convert.files import locations

SOURCES = {  # what is put into a store, and the URL's end that is read
    "square.keras": ("keras-3.15.1/square.keras", ""),
    "square.weights.h5": ("keras-3.15.1/square.weights.h5", ""),
    "legacy.h5": ("keras-2.4/square.h5", ""),
    "checkpoint": ("keras-2.12/square.tfckpt", ""),
    "prefix": ("keras-2.12/square.tfckpt", "/ckpt"),
    "savedmodel": ("keras-2.15/square.savedmodel", ""),
}


def put_all(store, root, golden):
    """The sources in a store."""
    for name, (file, _) in SOURCES.items():
        store.put(str(golden / file), f"{root}/{name}", recursive=(golden / file).is_dir())


def tensors_of(path):
    """A safetensors file as bytes by key."""
    from safetensors.numpy import load_file

    return {key: array.tobytes() for key, array in load_file(path).items()}


@pytest.mark.parametrize("name", SOURCES)
def test_any_source_from_a_store_gives_what_the_local_one_gives(memory, golden, tmp_path, name):
    file, end = SOURCES[name]
    put_all(memory, "/models", golden)
    url = f"memory://models/{name}{end}"
    report = mha_convert.convert_file(url, tmp_path / "remote.safetensors")
    assert report.proven
    assert report.source.path == url
    mha_convert.convert_file(f"{golden / file}{end}", tmp_path / "local.safetensors")
    assert tensors_of(tmp_path / "remote.safetensors") == tensors_of(tmp_path / "local.safetensors")
    assert mha_convert.verify_file(url, tmp_path / "local.safetensors").proven


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_target_in_a_store_is_the_local_one_and_loads(memory, golden, tmp_path, suffix):
    source = golden / "keras-3.15.1/square.keras"
    url = f"memory://out/attention{suffix}"
    assert mha_convert.convert_file(source, url).proven
    mha_convert.convert_file(source, tmp_path / f"local{suffix}")
    assert memory.cat(url) == (tmp_path / f"local{suffix}").read_bytes()
    assert mha_convert.verify_file(source, url).proven
    assert set(mha_convert.load_modules(url)) == {"attn"}
    assert memory.find("/out") == [f"/out/attention{suffix}"]


def test_a_target_in_a_store_is_not_replaced_unasked(memory, golden):
    memory.pipe("/out/x.safetensors", b"precious")
    source = golden / "keras-3.15.1/square.keras"
    with pytest.raises(mha_convert.WriteError, match="memory://out/x.safetensors exists already"):
        mha_convert.convert_file(source, "memory://out/x.safetensors")
    assert memory.cat("/out/x.safetensors") == b"precious"
    assert mha_convert.convert_file(source, "memory://out/x.safetensors", overwrite=True).proven
    with pytest.raises(mha_convert.WriteError, match="is the source itself"):
        mha_convert.convert_file("memory://a/x.pt", "memory://a/x.pt")


def test_nothing_is_published_without_a_proof(memory, golden, monkeypatch):
    from mha_convert import verification

    monkeypatch.setattr(
        verification, "verify", lambda *a, **o: (_ for _ in ()).throw(mha_convert.VerificationError("no"))
    )
    with pytest.raises(mha_convert.VerificationError):
        mha_convert.convert_file(golden / "keras-3.15.1/square.keras", "memory://out/x.safetensors")
    assert not memory.find("/out")


def test_a_store_that_loses_bytes_is_caught(memory, golden, monkeypatch):
    put_file = type(memory).put_file

    def lossy(self, local, remote, **options):
        put_file(self, local, remote, **options)
        content = self.cat(remote)
        self.pipe(remote, content[:-1] + bytes([content[-1] ^ 1]))

    monkeypatch.setattr(type(memory), "put_file", lossy)
    with pytest.raises(mha_convert.WriteError, match="came back from the store with other bytes, and was removed"):
        mha_convert.convert_file(golden / "keras-3.15.1/square.keras", "memory://out/x.safetensors")
    assert not memory.find("/out")


def test_messages_of_stores_are_ours(memory, tmp_path):
    for url, error, fact in (
        ("memory://nothing/x.keras", mha_convert.ReadError, "the store does not return it: there is no such file"),
        ("nonsense://x", mha_convert.ReadError, "is not an address that can be read"),
    ):
        with pytest.raises(error, match=f"{re.escape(url)}:? {fact}"):
            mha_convert.read(url)
    memory.pipe("/bad/x.keras", b"PK\x03\x04 no zip at all")
    with pytest.raises(mha_convert.ReadError, match="a zip archive that ends too early or is damaged"):
        mha_convert.read("memory://bad/x.keras")


def test_a_missing_package_is_named_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(mha_convert.ReadError, match=r'Run `pip install "mha-convert\[gs\]"`'):
        mha_convert.read("gs://bucket/x.keras")
    monkeypatch.setitem(sys.modules, "upath", None)
    with pytest.raises(mha_convert.ReadError, match=r'Run `pip install "mha-convert\[s3\]"`'):
        mha_convert.read("s3://bucket/x.keras")


def test_s3_from_end_to_end(s3, golden, tmp_path):
    put = "import fsspec, sys; s3 = fsspec.filesystem('s3'); p = iter(sys.argv[1:])\n"
    put += "for a, b in zip(p, p): s3.put(a, b, recursive=True)"
    pairs = [str(part) for name, (file, _) in SOURCES.items() for part in (golden / file, f"models/{name}")]
    subprocess.run([sys.executable, "-c", put, *pairs], env=os.environ | s3, check=True, timeout=60)
    urls = {name: f"s3://models/{name}{end}" for name, (_, end) in SOURCES.items()}
    for url in urls.values():
        assert "attn" in run_cli("inspect", url, env=s3, cwd=tmp_path).stdout
    target = "s3://models/out/x.safetensors"
    report = json.loads(run_cli("convert", urls["legacy.h5"], target, "--json", env=s3, cwd=tmp_path).stdout)
    assert (report["source"], report["target"], report["proven"]) == (urls["legacy.h5"], target, True)
    assert "proven" in run_cli("verify", urls["legacy.h5"], target, env=s3, cwd=tmp_path).stdout.lower()
    fetch = "import fsspec, sys; sys.stdout.buffer.write(fsspec.filesystem('s3').cat(sys.argv[1]))"
    command = [sys.executable, "-c", fetch, target]
    fetched = subprocess.run(command, env=os.environ | s3, check=True, capture_output=True, timeout=60).stdout
    (tmp_path / "fetched.safetensors").write_bytes(fetched)
    mha_convert.convert_file(golden / SOURCES["legacy.h5"][0], tmp_path / "local.safetensors")
    assert tensors_of(tmp_path / "fetched.safetensors") == tensors_of(tmp_path / "local.safetensors")
    assert "exists already" in run_cli("convert", urls["savedmodel"], target, env=s3, cwd=tmp_path, code=1).stderr
    run_cli("convert", urls["savedmodel"], target, "--overwrite", "--reference", "none", env=s3, cwd=tmp_path)
    for missing in ("s3://models/nope.keras", "s3://no-such-bucket/x.keras"):
        message = run_cli("inspect", missing, env=s3, cwd=tmp_path, code=1).stderr
        assert message.startswith(f"error: {missing}: the store does not return it: ")
        assert message.count("\n") == 1


@pytest.mark.process
def test_a_store_that_does_not_answer_is_an_error_and_not_a_traceback(tmp_path):
    env = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_MAX_ATTEMPTS": "1",
    }
    message = run_cli("inspect", "s3://models/x.keras", env=env, cwd=tmp_path, code=1).stderr
    assert message.startswith("error: s3://models/x.keras: the store does not return it: ")
    assert message.count("\n") == 1


class Web(http.server.BaseHTTPRequestHandler):
    """Serves `files`, with or without ranges, and counts what it sends."""

    files: dict[str, bytes] = {}  # noqa: RUF012
    ranges = True
    tells_length = False
    sent: list[int] = []  # noqa: RUF012
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.answer(send_body=False)

    def do_GET(self):
        self.answer(send_body=True)

    def answer(self, *, send_body):
        content = self.files.get(self.path.split("?")[0])
        if content is None:
            self.send_error(404)
            return
        if content == b"503":
            self.send_error(503)
            return
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if match and self.ranges:
            start, end = int(match[1]), min(int(match[2] or len(content) - 1), len(content) - 1)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(content)}")
            body = content[start : end + 1]
        else:
            self.send_response(200)
            body = content
        if self.ranges:
            self.send_header("Accept-Ranges", "bytes")
        if self.ranges or self.tells_length:
            self.send_header("Content-Length", str(len(body)))
        else:
            self.send_header("Connection", "close")
        self.end_headers()
        if send_body:
            for start in range(0, len(body), 1 << 16):  # a client may stop reading
                self.wfile.write(body[start : start + (1 << 16)])
                self.sent.append(len(body[start : start + (1 << 16)]))
        self.close_connection = not self.ranges

    def log_message(self, *arguments):
        pass


@pytest.fixture
def web():
    """A web server on loopback: its address and its handler."""
    handler = type("Handler", (Web,), {"files": {}, "sent": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()
    server.server_close()


def large_model(samples: Path) -> bytes:
    """A genuine model followed by 40 MB that nobody needs: a zip member of another name."""
    content = io.BytesIO((samples / "six_heads.keras").read_bytes())
    with zipfile.ZipFile(content, "a") as archive:
        archive.writestr("assets/vocabulary.bin", np.random.default_rng(0).bytes(40 << 20))
    return content.getvalue()


@pytest.mark.process
@pytest.mark.parametrize("ranges, tells_length", [(True, True), (False, False), (False, True)])
def test_web_servers_with_and_without_ranges(web, samples, golden, tmp_path, ranges, tells_length):
    address, handler = web
    handler.ranges, handler.tells_length = ranges, tells_length
    handler.files["/w.h5"] = (golden / "keras-3.15.1/square.weights.h5").read_bytes()
    run_cli("convert", f"{address}/w.h5", "w.pt", "--reference", "none", env={}, cwd=tmp_path)
    (tmp_path / "w.pt").unlink()
    handler.files["/busy.keras"] = b"503"
    assert "503" in run_cli("inspect", f"{address}/busy.keras", env={}, cwd=tmp_path, code=1).stderr
    handler.files["/six_heads.keras"] = (samples / "six_heads.keras").read_bytes()
    url = f"{address}/six_heads.keras?download=1"
    document = json.loads(run_cli("inspect", url, "--json", env={}, cwd=tmp_path).stdout)
    assert [layer["num_heads"] for layer in document["layers"]] == [6]
    run_cli("convert", url, env={}, cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["six_heads.safetensors"]
    assert "no such file" in run_cli("inspect", f"{address}/no.keras", env={}, cwd=tmp_path, code=1).stderr


@pytest.mark.process
def test_a_large_file_from_a_server_without_ranges_is_copied_once(web, samples, tmp_path):
    address, handler = web
    handler.ranges, handler.tells_length = False, True
    handler.files["/large.keras"] = large_model(samples)
    run_cli("inspect", f"{address}/large.keras", env={}, cwd=tmp_path)
    assert sum(handler.sent) < 5 * len(handler.files["/large.keras"])


@pytest.mark.process
def test_only_the_ranges_that_are_needed_are_fetched(web, samples, tmp_path):
    address, handler = web
    handler.files["/large.keras"] = large_model(samples)
    run_cli("inspect", f"{address}/large.keras", env={}, cwd=tmp_path)
    assert sum(handler.sent) < 1 << 20
    run_cli("convert", f"{address}/large.keras", env={}, cwd=tmp_path)
    assert sum(handler.sent) < 2 << 20


@pytest.mark.process
def test_standard_input(golden, tmp_path):
    content = (golden / "keras-3.15.1/square.keras").read_bytes()

    def run(*arguments, code=0):
        command = [sys.executable, "-m", "mha_convert", *arguments]
        result = subprocess.run(command, input=content, capture_output=True, cwd=tmp_path, timeout=120)
        assert result.returncode == code, result.stderr
        return result

    assert b"attn" in run("inspect", "-").stdout
    run("convert", "-", "x.safetensors")
    assert set(mha_convert.load_modules(tmp_path / "x.safetensors")) == {"attn"}
    assert b"- has no name to call the target after. Use TARGET." in run("convert", "-", code=1).stderr
    assert b"proven" in run("verify", "-", "x.safetensors").stdout.lower()
    assert b"is one file, and two inputs were asked for" in run("inspect", "-", "--config", "-", code=1).stderr


@pytest.mark.process
def test_copies_are_removed_at_the_end(golden, tmp_path):
    (tmp_path / "scratch").mkdir()
    content = (golden / "keras-3.15.1/square.keras").read_bytes()
    command = [sys.executable, "-m", "mha_convert", "inspect", "-"]
    environment = os.environ | {"TMPDIR": str(tmp_path / "scratch")}
    subprocess.run(command, input=content, env=environment, check=True, capture_output=True, timeout=60)
    assert not list((tmp_path / "scratch").iterdir())


def test_what_is_a_url():
    assert locations.is_url("s3://b/x")
    assert locations.is_url("HTTPS://h/x")
    assert not locations.is_url("C:/x")
    assert not locations.is_url("a/b://c")
    assert not locations.is_url(Path("x"))
    assert locations.locate("file:///tmp/a%20b.keras") == Path("/tmp/a b.keras")
    for url, fact in (("file://cfg/x", "names the machine 'cfg'"), ("memory://", "names no file")):
        with pytest.raises(mha_convert.ReadError, match=fact):
            locations.locate(url)
    assert str(locations.locate("MEMORY://a/x")) == "memory://a/x"
    assert locations.name_of("https://h/a/x.keras?download=1#top") == "x.keras"
    assert locations.name_of("/a/x.keras") == "x.keras"


@pytest.mark.process
def test_local_work_imports_no_store():
    code = (
        "import sys, mha_convert\n"
        "mha_convert.find_layers(mha_convert.read(sys.argv[1]))\n"
        "print([name for name in ('fsspec', 'upath', 'aiohttp', 'google.protobuf') if name in sys.modules])"
    )
    sample = TESTS / "golden/keras-3.15.1/square.keras"
    result = subprocess.run([sys.executable, "-c", code, sample], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "[]"
