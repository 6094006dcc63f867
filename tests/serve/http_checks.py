"""HTTP by the book (RFC 9110 and 9112): requests as bytes, some of them unusual, some wrong."""
import http.client
import json
import socket
import time

from server import Connection, Wrong, expect, request, until

OPTIONS = ["--context", 512, "--sequences", 2, "--queue", 8]
CHECKS = []
BODY_BYTES_MOST = 1 << 20


def check(function):
    CHECKS.append(function)
    return function


def tokenize(text="one two three", headers=(), **more):
    return request("POST", "/tokenize", {"content": text}, headers, **more)


def alive(server):
    answer = server.ask("/health")
    expect(answer.status == 200, f"the server is no longer healthy: {answer.status}")


def closes(connection):
    """An error that ends the connection, or an end without an answer."""
    try:
        answer = connection.answer()
    except (Wrong, ConnectionResetError):
        return None
    expect(400 <= answer.status < 600, f"expected an error, got {answer.status}")
    return answer.status


def in_chunks(data, sizes):
    """The chunked form of a body."""
    parts, at = [], 0
    while at < len(data):
        piece = data[at:at + sizes[len(parts) % len(sizes)]]
        parts.append(b"%x\r\n%s\r\n" % (len(piece), piece))
        at += len(piece)
    return b"".join(parts) + b"0\r\n\r\n"


@check
def plain_requests(server):
    """GET works on the pages without a body, with and without a query."""
    for path in ["/", "/health", "/ready", "/metrics", "/v1/models", "/health?a=b", "/v1/models?x=%20"]:
        with Connection(server) as connection:
            answer = connection.send(request("GET", path)).answer()
            expect(answer.status == 200, f"GET {path}: {answer.status}")
            expect(answer.body, f"GET {path}: an empty body")
            expect("date" in answer.headers, f"GET {path}: no Date")


@check
def chunked_body(server):
    """A body in chunks of any size, with extensions and a trailer, is the same body."""
    data = json.dumps({"content": "one two three"}).encode()
    plain = server.ask("/tokenize", data).body
    for sizes in [[1], [7], [3, 1, 11], [4096]]:
        with Connection(server) as connection:
            head = request("POST", "/tokenize", b"", [("Transfer-Encoding", "chunked")])
            answer = connection.send(head + in_chunks(data, sizes)).answer()
            expect(answer.status == 200 and answer.body == plain, f"chunks of {sizes}: {answer.status} {answer.body!r}")
    with Connection(server) as connection:
        chunk = b'%X;name="value"\r\n%s\r\n0\r\nX-Trailer: a\r\n\r\n' % (len(data), data)
        answer = connection.send(request("POST", "/tokenize", b"", [("Transfer-Encoding", "chunked")]) + chunk).answer()
        expect(answer.body == plain, f"with an extension and a trailer: {answer.status} {answer.body!r}")
        expect(connection.send(request("GET", "/health")).answer().status == 200, "the connection does not go on")


@check
def wrong_chunks(server):
    """A chunk without a size in hexadecimal digits, or longer than it says, is an error."""
    for chunks in [b"xyz\r\nabc\r\n0\r\n\r\n", b"-1\r\na\r\n0\r\n\r\n", b"3\r\nabcdef\r\n0\r\n\r\n",
                   b"ffffffffffffffffff\r\nabc\r\n"]:
        with Connection(server) as connection:
            connection.send(request("POST", "/tokenize", b"", [("Transfer-Encoding", "chunked")]) + chunks)
            closes(connection)
    alive(server)


@check
def expect_100_continue(server):
    """Expect: 100-continue is answered before the body comes; a body that is too large is refused."""
    data = json.dumps({"content": "one"}).encode()
    with Connection(server) as connection:
        head = request("POST", "/tokenize", b"", [("Content-Length", len(data)), ("Expect", "100-continue")])
        status, _, _ = connection.send(head).head()
        expect(status == 100, f"expected 100, got {status}")
        expect(connection.send(data).answer().status == 200, "no answer after 100 Continue")
    with Connection(server) as connection:
        head = request("POST", "/tokenize", b"", [("Content-Length", 1 << 30), ("Expect", "100-continue")])
        answer = connection.send(head).answer()
        expect(answer.status == 413, f"a body of 1 GiB was announced: expected 413, got {answer.status}")


@check
def pipelining(server):
    """Requests that come at once are answered in their order."""
    with Connection(server) as connection:
        connection.send(request("GET", "/v1/models") + tokenize("a b") + request("GET", "/nothing") + tokenize("c")
                        + request("HEAD", "/health") + request("GET", "/ready"))
        answers = [connection.answer(method) for method in ["GET", "POST", "GET", "POST", "HEAD", "GET"]]
        expect([answer.status for answer in answers] == [200, 200, 404, 200, 200, 200],
               f"statuses {[answer.status for answer in answers]}")
        expect("data" in answers[0].json() and "tokens" in answers[1].json(), "answers in another order")
        expect(len(answers[1].json()["tokens"]) > len(answers[3].json()["tokens"]), "answers in another order")


@check
def pipelined_answers_of_the_model(server):
    """So are answers of the model, streamed or not."""
    body = {"prompt": "The sky is", "max_tokens": 3, "temperature": 0}
    with Connection(server) as connection:
        connection.send(request("POST", "/v1/completions", body)
                        + request("POST", "/v1/completions", {**body, "stream": True}) + tokenize())
        text = connection.answer().json()["choices"][0]["text"]
        events = connection.answer().body
        pieces = [json.loads(line[6:]) for line in events.decode().splitlines() if line.startswith("data: {")]
        streamed = "".join(choice["text"] for piece in pieces for choice in piece["choices"])
        expect(streamed == text, f"'{text}' and, streamed, '{streamed}'")
        expect("tokens" in connection.answer().json(), "no answer after a stream")


@check
def keep_alive(server):
    """A connection serves many requests, until the client asks to close it."""
    with Connection(server) as connection:
        for _ in range(50):
            expect(connection.send(tokenize()).answer().status == 200, "a request on a used connection")
        answer = connection.send(request("GET", "/health", headers=[("Connection", "close")])).answer()
        expect(answer.headers.get("connection", "").lower() == "close", "an answer that does not say Connection: close")
        expect(connection.closed(), "the connection stays after Connection: close")


@check
def head(server):
    """HEAD has the headers of GET and no body."""
    for path in ["/", "/health", "/ready", "/v1/models"]:
        with Connection(server) as connection:
            get = connection.send(request("GET", path)).answer()
            answer = connection.send(request("HEAD", path)).answer("HEAD")
            expect(answer.status == get.status, f"HEAD {path}: {answer.status}, GET {get.status}")
            expect(answer.headers.keys() == get.headers.keys(), f"HEAD {path}: {answer.headers}, GET {get.headers}")
            expect(answer.headers["content-length"] == get.headers["content-length"], f"HEAD {path}: its length")
            expect(connection.send(request("GET", "/health")).answer().status == 200, "the connection does not go on")


@check
def not_found(server):
    """A path that is not there is 404, with a JSON error; no file of the machine is."""
    for path in ["/nothing", "/v1", "/v1/chat/completions/", "/v1/chat", "//", "/../../../../etc/passwd",
                 "/%2e%2e/%2e%2e/etc/passwd", "/health/", "/" + "a" * 2000, "/%00", "/%zz"]:
        with Connection(server) as connection:
            answer = connection.send(request("GET", path)).answer()
            if answer.status == 400:  # as good for a path that is not a path
                expect("%" in path, f"GET {path[:60]}: 400")
            else:
                answer.is_error(404)


@check
def method_not_allowed(server):
    """A method that a path does not have is 405, and Allow names those that it has."""
    for method, path, allowed in [("GET", "/v1/chat/completions", {"POST"}), ("DELETE", "/v1/completions", {"POST"}),
                                  ("PUT", "/tokenize", {"POST"}), ("POST", "/health", {"GET", "HEAD"}),
                                  ("POST", "/", {"GET", "HEAD"}), ("PATCH", "/v1/models", {"GET", "HEAD"})]:
        with Connection(server) as connection:
            body = {"a": 1} if method in ("PUT", "POST", "PATCH") else None
            answer = connection.send(request(method, path, body)).answer()
            answer.is_error(405)
            names = {name.strip() for name in answer.headers.get("allow", "").split(",")}
            expect(allowed <= names | {"OPTIONS"}, f"{method} {path}: Allow is '{answer.headers.get('allow')}'")


@check
def body_of_a_mebibyte(server):
    """A body of 1 MiB is read; a byte more is 413, in chunks too; the server goes on."""
    text = b'{"content": "one two"}'
    largest = text + b" " * (BODY_BYTES_MOST - len(text))
    expect(server.ask("/tokenize", largest).status == 200, "a body of 1 MiB is refused")
    with Connection(server) as connection:
        connection.send(request("POST", "/tokenize", b"", [("Content-Length", BODY_BYTES_MOST + 1)]))
        connection.answer().is_error(413)
    with Connection(server) as connection:
        connection.send(request("POST", "/tokenize", b"", [("Transfer-Encoding", "chunked")]))
        try:
            connection.send(in_chunks(largest + b" ", [65536]))
        except (BrokenPipeError, ConnectionResetError):
            pass  # it need not read all of it
        try:
            connection.answer().is_error(413)
        except ConnectionResetError:
            pass  # the answer was lost, as it may be to a client that still writes
    alive(server)


@check
def content_type(server):
    """A body of another type than JSON is 415."""
    for kind, status in [("application/json", 200), ("application/json; charset=utf-8", 200), ("Application/JSON", 200),
                         ("text/plain", 415), ("application/x-www-form-urlencoded", 415), ("application/jsonx", 415)]:
        answer = server.ask("/tokenize", {"content": "a"}, headers={"Content-Type": kind})
        expect(answer.status == status, f"Content-Type {kind}: expected {status}, got {answer.status}")
        if status == 415:
            answer.is_error(415)


@check
def huge_headers(server):
    """Headers without end are refused, with 431 or 414; the server goes on."""
    for data in [request("GET", "/health", headers=[("X-Long", "a" * 200_000)]),
                 request("GET", "/health", headers=[(f"X-{i}", "a" * 50) for i in range(4000)])]:
        with Connection(server) as connection:
            try:
                status = closes(connection.send(data))
                expect(status in (None, 400, 413, 431), f"expected 431, got {status}")
            except (BrokenPipeError, ConnectionResetError):
                pass  # closed while the headers still came
    with Connection(server) as connection:
        status = connection.send(request("GET", "/health", headers=[("X-Long", "a" * 60_000)])).answer().status
        expect(status == 431, f"a header of 60 kB: expected 431, got {status}")
    with Connection(server) as connection:
        status = connection.send(request("GET", "/" + "a" * 60_000)).answer().status
        expect(status in (414, 431), f"a path of 60 kB: expected 414, got {status}")
    alive(server)


@check
def a_byte_at_a_time(server):
    """A request may come a byte at a time, while others are served."""
    with Connection(server) as connection:
        for byte in tokenize("slowly"):
            connection.send(bytes([byte]))
            time.sleep(0.001)
        alive(server)
        expect(connection.answer().status == 200, "a request a byte at a time")


@check
def bad_json(server):
    """A body that is not the JSON expected is 400 with a sentence."""
    for body in [b"", b"{", b"[]", b"null", b'"text"', b'{"content": }', b'{"content": "a"} x', b"{'content': 'a'}",
                 b'{"content": NaN}', b'{"content": 1}', b"{}", b'{"content": "\xff\xfe"}', b"\0\0\0", b"[" * 100_000,
                 b'{"content": "a", "content": "b"}', b'{"content": "\\ud800"}']:
        answer = server.ask("/tokenize", body, "POST")
        answer.is_error(400)
    alive(server)


@check
def a_length_that_lies(server):
    """A body shorter than Content-Length is no request; lengths that contradict each other are errors."""
    data = json.dumps({"content": "one"}).encode()
    with Connection(server) as connection:
        connection.send(request("POST", "/tokenize", data[:-3], [("Content-Length", len(data))]))
        connection.socket.shutdown(socket.SHUT_WR)
        status = closes(connection)
        expect(status in (None, 400, 408), f"a body cut short: {status}")
    with Connection(server) as connection:  # what is more than the length is the next request, and not one
        connection.send(request("POST", "/tokenize", data + b"more\r\n\r\n", [("Content-Length", len(data))]))
        expect(connection.answer().status == 200, "the request before the surplus")
        closes(connection)
    for values in [[-1], ["ten"], ["99999999999999999999999"], [len(data), len(data) + 5], [len(data) + 5, len(data)],
                   ["16, 17"], ["+18"], ["0x12"]]:
        headers = [("Content-Length", value) for value in values]
        with Connection(server) as connection:
            status = closes(connection.send(request("POST", "/tokenize", data, headers)))
            expect(status in (None, 400, 413), f"{headers}: {status}")
    alive(server)


@check
def length_and_chunks(server):
    """Content-Length with Transfer-Encoding smuggles no second request: an error, or the connection is closed."""
    data = in_chunks(json.dumps({"content": "one"}).encode(), [100])
    with Connection(server) as connection:
        headers = [("Content-Length", 4), ("Transfer-Encoding", "chunked")]
        connection.send(request("POST", "/tokenize", data, headers) + request("GET", "/v1/models"))
        answer = connection.answer()
        expect(answer.status in (200, 400), f"expected 200 or 400, got {answer.status}")
        if answer.status == 200:
            expect("tokens" in answer.json(), f"another answer: {answer.body!r}")
        else:
            expect(connection.closed(), "a connection in doubt stays open")


@check
def aborted_uploads(server):
    """Uploads that end in the middle leave nothing behind."""
    alive(server)
    before = server.descriptors()
    for i in range(50):
        connection = Connection(server)
        connection.send(request("POST", "/v1/chat/completions", b'{"messages": [', [("Content-Length", 1000 + i)]))
        (connection.reset if i % 2 else connection.close)()
    until(lambda: server.descriptors() <= before, f"more than {before} descriptors")


@check
def http_1_0(server):
    """HTTP/1.0: no Host, no chunks, and the end of the connection is the end of the answer."""
    with Connection(server) as connection:
        answer = connection.send(request("GET", "/health", host=None, version="HTTP/1.0")).answer()
        expect(answer.status == 200, f"HTTP/1.0 without Host: {answer.status}")
        expect(connection.closed(), "the connection stays")
    body = {"prompt": "The sky is", "max_tokens": 3, "temperature": 0, "stream": True}
    with Connection(server) as connection:
        status, headers, _ = connection.send(request("POST", "/v1/completions", body, version="HTTP/1.0")).head()
        expect(status == 200, f"a stream over HTTP/1.0: {status}")
        expect("transfer-encoding" not in headers, "chunks in an answer to HTTP/1.0")
        expect(connection.file.read().endswith(b"data: [DONE]\n\n"), "a stream without [DONE]")


@check
def absolute_uri(server):
    """A request's target may be an absolute URI (RFC 9112, 3.2.2)."""
    with Connection(server) as connection:
        for path in ["/health", "/v1/models?a=b"]:
            answer = connection.send(request("GET", f"http://127.0.0.1:{server.port}{path}")).answer()
            expect(answer.status == 200, f"http://...{path}: {answer.status}")
        answer = connection.send(request("GET", f"http://127.0.0.1:{server.port}/nothing")).answer()
        expect(answer.status == 404, f"http://.../nothing: {answer.status}")


@check
def host_is_missing(server):
    """HTTP/1.1 without Host is 400 (RFC 9112, 3.2)."""
    with Connection(server) as connection:
        status = connection.send(request("GET", "/health", host=None)).answer().status
        expect(status == 400, f"expected 400, got {status}")


@check
def lines_that_are_no_request(server):
    """What is not HTTP is an error or the end of the connection."""
    for data in [b"hello\r\n\r\n", bytes(1000) + b"\n\n",
                 b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n\r\n",  # TLS
                 b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /health HTTP/9.9\r\nHost: a\r\n\r\n",
                 b"GET /health HTTP/1.1\r\nHost: a\r\n folded: b\r\n: c\r\n\r\n", b"GET  HTTP/1.1\r\nHost: a\r\n\r\n",
                 b"GET /health HTTP/1.1\r\nHost : a\r\nNo colon\r\n\r\n"]:
        with Connection(server) as connection:
            connection.send(data)
            connection.socket.shutdown(socket.SHUT_WR)
            try:
                connection.file.read(1)  # of an answer, or the end; within PATIENCE
            except ConnectionResetError:
                pass
    alive(server)


@check
def empty_lines_before_a_request(server):
    """A server ignores at least one empty line before a request (RFC 9112, 2.2)."""
    with Connection(server) as connection:
        answer = connection.send(b"\r\n" + request("GET", "/health")).answer()
        expect(answer.status == 200, f"expected 200, got {answer.status}")


@check
def kept_by_a_client_library(server):
    """http.client keeps one connection for all of its requests."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for _ in range(20):
        connection.request("POST", "/tokenize", json.dumps({"content": "a"}), {"Content-Type": "application/json"})
        first = connection.sock
        response = connection.getresponse()
        expect(response.status == 200 and json.loads(response.read())["tokens"], "an answer")
        expect(connection.sock is first, "the server closed the connection")
    connection.close()
