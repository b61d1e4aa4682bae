"""`namsa examples`, from a server on this machine."""

import functools
import hashlib
import http.server
import json
import threading

import pytest
from measured_files import MEASURED, needs_measured

from namsa.cli.commands import examples
from namsa.cli.parser import main

CONTENT = bytes(range(256)) * 4000  # more than a piece
EXAMPLE = examples.Example(
    "scan.h5", len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), "a scan", "--x 1", "MIT", "me"
)


class Server(http.server.BaseHTTPRequestHandler):
    """Serves `content` from memory; the first `breaks` answers end after a third. Ranges as
    `ranges` says.
    """

    content = CONTENT
    breaks = 0
    ranges = True
    asked = ()

    def do_GET(self):
        cls = type(self)
        cls.asked = (*cls.asked, self.headers.get("Range"))
        start = int(self.headers["Range"][6:-1]) if cls.ranges and "Range" in self.headers else 0
        if self.path != "/files/scan.h5":
            self.send_error(404)
            return
        body = cls.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        if start:
            self.send_header(
                "Content-Range", f"bytes {start}-{len(cls.content) - 1}/{len(cls.content)}"
            )
        self.end_headers()
        if cls.breaks:
            cls.breaks -= 1
            body = body[: len(body) // 3]
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def fetch(tmp_path, monkeypatch, capsys):
    """Runs `namsa examples fetch scan.h5`; returns its exit code and what it printed. `handler` is
    the server's.
    """
    monkeypatch.setattr(examples, "EXAMPLES", (EXAMPLE,))
    monkeypatch.delenv(examples.ADDRESS, raising=False)
    handler = type("Own", (Server,), {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=functools.partial(server.serve_forever, 0.01))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/files/"

        def run(*words, names=("scan.h5",), source=url):
            code = main(
                [
                    "examples",
                    "fetch",
                    *names,
                    "--out",
                    str(tmp_path / "new"),
                    "--from",
                    source,
                    *words,
                ]
            )
            printed = capsys.readouterr()
            return code, printed.out + printed.err

        run.handler = handler
        run.url = url
        run.file = tmp_path / "new" / "scan.h5"
        yield run
        server.shutdown()
        thread.join()


def left(fetch):
    if fetch.file.parent.exists():
        return sorted(path.name for path in fetch.file.parent.glob("*"))
    return []


def test_a_file_is_fetched_once_and_never_replaced(fetch):
    code, printed = fetch()
    assert code == 0
    assert "a scan; --x 1" in printed
    assert fetch.file.read_bytes() == CONTENT
    assert fetch()[1].endswith("there already, as it should be\n")
    assert len(fetch.handler.asked) == 1
    fetch.file.write_bytes(b"mine")
    code, printed = fetch()
    assert (code, fetch.file.read_bytes()) == (2, b"mine")
    assert "not this example" in printed
    assert left(fetch) == ["scan.h5"]


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_connection_goes_on_or_starts_again(fetch, ranges):
    fetch.handler.ranges = ranges
    fetch.handler.breaks = 2
    assert fetch()[0] == 0
    assert fetch.file.read_bytes() == CONTENT
    assert fetch.handler.asked[0] is None
    third = len(CONTENT) // 3
    assert fetch.handler.asked[1] == f"bytes={third}-"
    fetch.file.unlink()
    fetch.handler.breaks = 100
    code, printed = fetch()
    assert code == 1
    assert "in 4 tries" in printed
    assert left(fetch) == []


@pytest.mark.parametrize("content", [CONTENT + b"x", CONTENT[:-1] + b"x", CONTENT[::-1]])
def test_other_bytes_are_not_kept(fetch, content):
    fetch.handler.content = content
    code, printed = fetch()
    assert code == 1
    assert "its checksum differs" in printed
    assert left(fetch) == []


def test_a_folder_serves_too_and_faults_are_one_line(fetch, tmp_path, monkeypatch):
    (tmp_path / "scan.h5").write_bytes(CONTENT)
    for source, code, message in (
        ("ftp://here", 2, "begins with http://"),
        ("", 2, "give --from URL, or set NAMSA_EXAMPLES_URL=URL"),
        (fetch.url + "none", 1, "the server answers 404"),
        ("http://127.0.0.1:9", 1, "in 4 tries"),
        ("no folder", 2, "--from no folder: there is no such folder"),
        (tmp_path.as_uri(), 0, "a scan"),
    ):
        exit_code, printed = fetch(source=source)
        assert (exit_code, printed.count("\n")) == (code, 1)
        assert message in printed
    assert "no example other.h5" in fetch(names=("other.h5",))[1]
    fetch.file.unlink()
    monkeypatch.setenv(examples.ADDRESS, fetch.url)
    assert fetch(source="")[0] == 0


def test_the_list_has_sizes_checksums_and_licences(capsys):
    assert main(["examples", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert len({example["name"] for example in listed}) == len(listed) > 0
    for example in listed:
        assert example["bytes"] > 0
        assert len(bytes.fromhex(example["sha256"])) == 32
        assert example["licence"]
    assert main(["examples"]) == 0
    printed = capsys.readouterr().out
    for example in listed:
        assert example["name"] in printed
        assert example["about"] in printed


@needs_measured
def test_the_list_is_of_the_files_of_the_tests():
    for example in examples.EXAMPLES:
        assert examples.is_intact(MEASURED / "rotavirus" / example.name, example)
