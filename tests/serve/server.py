"""A server of samples/serve as a process of its own, and HTTP spoken to it by hand: every byte that goes out is the
caller's, and every byte that comes back is checked against RFC 9112."""
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time

PATIENCE = 120  # seconds until a step that does not end is a failure; a loaded machine is slow


class Wrong(Exception):
    """What a check found. Its text is a sentence."""


def expect(condition, sentence):
    if not condition:
        raise Wrong(sentence)


def until(condition, sentence, patience=PATIENCE):
    """Waits until condition() is true, and returns what it returned."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.02)
    raise Wrong(f"{sentence}, even after {patience} s")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Answer:
    """A response: status, headers with names in small letters, body."""

    def __init__(self, status, headers, body, version="HTTP/1.1"):
        self.status, self.headers, self.body, self.version = status, headers, body, version

    def json(self):
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise Wrong(f"status {self.status} with a body that is not JSON ({error}): {self.body[:200]!r}") from None

    def is_error(self, status, *words):
        """The error has this status, the four members of OpenAI's errors, and the words in its message."""
        expect(self.status == status, f"expected status {status}, got {self.status}: {self.body[:300]!r}")
        error = self.json().get("error")
        expect(isinstance(error, dict) and {"message", "type", "param", "code"} <= error.keys(),
               f"expected an error with message, type, param and code, got {self.body[:300]!r}")
        expect(isinstance(error["message"], str) and error["message"], f"an error without a message: {error}")
        for word in words:
            expect(word in error["message"], f"expected '{word}' in the message, got: {error['message']}")
        return error


class Connection:
    """A connection whose requests are bytes."""

    def __init__(self, server, receive_bytes=None):
        self.socket = socket.socket(socket.AF_UNIX if server.path else socket.AF_INET)
        if receive_bytes:  # before connect: the window is agreed on then
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(server.path or ("127.0.0.1", server.port))
        if not server.path:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.file.close()
        self.socket.close()

    def reset(self):
        """Ends the connection as a machine does that lost its program: with a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.close()

    def send(self, data):
        self.socket.sendall(data)
        return self

    def line(self):
        line = self.file.readline(65536)
        expect(line.endswith(b"\r\n"), f"expected a line that ends with CR LF, got {line[:200]!r}")
        return line[:-2]

    def head(self):
        """Status, headers and version of a response."""
        match = re.fullmatch(rb"(HTTP/1\.[01]) (\d{3}) ([\x20-\x7e]*)", self.line())
        expect(match, "expected a status line")
        headers = {}
        while line := self.line():
            name, colon, value = line.decode("latin-1").partition(":")
            expect(colon and re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name), f"expected a header, got {line!r}")
            expect(name.lower() not in headers, f"the header {name} comes twice")
            headers[name.lower()] = value.strip()
        return int(match[2]), headers, match[1].decode()

    def chunks(self):
        while True:
            size = self.line()
            expect(re.fullmatch(rb"[0-9A-Fa-f]+", size), f"expected the size of a chunk, got {size!r}")
            count = int(size, 16)
            data = self.file.read(count)
            expect(len(data) == count, f"a chunk of {count} bytes ended after {len(data)}")
            expect(self.line() == b"", "expected CR LF after a chunk")
            if count == 0:
                return
            yield data

    def body(self, headers):
        """The parts of a body as they arrive."""
        if headers.get("transfer-encoding") == "chunked":
            expect("content-length" not in headers, "both Transfer-Encoding and Content-Length")
            yield from self.chunks()
        elif "content-length" in headers:
            left = int(headers["content-length"])
            data = self.file.read(left)
            expect(len(data) == left, f"a body of {left} bytes ended after {len(data)}")
            yield data
        else:
            expect(headers.get("connection", "").lower() == "close", "a body without length on a connection that stays")
            while data := self.file.read1(65536):
                yield data

    def answer(self, method="GET"):
        status, headers, version = self.head()
        if method == "HEAD" or status in (204, 304) or status < 200:
            return Answer(status, headers, b"", version)
        return Answer(status, headers, b"".join(self.body(headers)), version)

    def closed(self):
        """Does the server close the connection without another byte?"""
        try:
            return self.file.read(1) == b""
        except ConnectionResetError:
            return True


def request(method, path, body=None, headers=(), host="127.0.0.1", version="HTTP/1.1"):
    """The bytes of a request. body: bytes, or something that becomes JSON. headers: pairs."""
    lines = [f"{method} {path} {version}"] + ([f"Host: {host}"] if host else [])
    names = {name.lower() for name, _ in headers}
    if body is not None:
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        if "content-type" not in names:
            lines.append("Content-Type: application/json")
        if not names & {"content-length", "transfer-encoding"}:
            lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b"")


class Stream:
    """The events of a streamed answer."""

    def __init__(self, server, path, body, receive_bytes=None, headers=(), version="HTTP/1.1"):
        self.connection = Connection(server, receive_bytes)
        self.text, self.finish, self.usage, self.events, self.done = "", None, None, [], False
        self.rest = self.read()
        self.connection.send(request("POST", path, {**body, "stream": True}, headers, version=version))

    def begin(self):
        status, self.headers, _ = self.connection.head()
        if status != 200:
            raise Wrong(f"expected a stream, got status {status}: {b''.join(self.connection.body(self.headers))!r}")
        expect(self.headers.get("content-type", "").startswith("text/event-stream"),
               f"expected text/event-stream, got {self.headers.get('content-type')}")
        return self

    def __iter__(self):
        """Each event as JSON, from where the last loop stopped."""
        return self.rest

    def read(self):
        held = b""
        for part in self.connection.body(self.headers):
            held += part
            while b"\n\n" in held:
                event, held = held.split(b"\n\n", 1)
                if event.startswith(b":"):
                    continue  # a comment, which keeps the connection alive
                expect(event.startswith(b"data: ") and b"\n" not in event, f"expected an event, got {event!r}")
                expect(not self.done, "an event after [DONE]")
                if event == b"data: [DONE]":
                    self.done = True
                    continue
                yield self.take(json.loads(event[6:]))
        expect(held == b"", f"a stream that ends within an event: {held!r}")

    def take(self, event):
        """Gathers text, finish reason and usage."""
        self.events.append(event)
        for choice in event.get("choices", []):
            piece = choice["delta"].get("content") if "delta" in choice else choice["text"]
            self.text += piece or ""
            self.finish = choice["finish_reason"] or self.finish
        self.usage = event.get("usage") or self.usage
        return event

    def first(self, count=1):
        """Reads until `count` events had text."""
        for event in self:
            choices = event.get("choices", [])
            count -= any(choice.get("text") or choice.get("delta", {}).get("content") for choice in choices)
            if count <= 0:
                return self
        raise Wrong(f"the stream ended too early, at {self.events[-1:]}")

    def whole(self):
        for _ in self:
            pass
        expect(self.done, f"a stream without [DONE]; its last event is {self.events[-1:]}")
        self.connection.close()
        return self


METRIC = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)*\})? '
                    r'([+-]?(?:\d+\.?\d*(?:e[+-]?\d+)?|Inf)|NaN)(?: \d+)?', re.IGNORECASE)


class Server:
    """Starts the program, waits until it is ready, and ends it."""

    def __init__(self, program, model, *options, path=None, limits=None):
        """path: of a socket file, instead of a port. limits: called in the process before the program begins."""
        self.port, self.path = None if path else free_port(), path
        self.log = tempfile.TemporaryFile("w+")
        place = ["--unix", path] if path else ["--listen", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen([program, "--model", model, *place, *map(str, options)],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, preexec_fn=limits)
        try:
            until(self.ready, "the server is not ready")
        except BaseException:
            self.kill()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def ready(self):
        expect(self.process.poll() is None, f"the server ended with status {self.process.poll()}: {self.said()}")
        with contextlib.suppress(OSError):
            with Connection(self) as connection:
                return connection.send(request("GET", "/ready")).answer().status == 200
        return False

    def ask(self, path, body=None, method=None, headers=None):
        """One request through http.client, which knows HTTP independently of this file."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body)
            kind = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method or ("GET" if body is None else "POST"), path, data, {**kind, **(headers or {})})
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())
        finally:
            connection.close()

    def metrics(self):
        """Sample -> value; a sample's name has its labels."""
        samples = {}
        for line in self.ask("/metrics").body.decode().splitlines():
            if match := METRIC.fullmatch(line):
                samples[match[1] + (match[2] or "")] = float(match[3])
        return samples

    def metric(self, *words):
        """The sum of the samples whose name has all the words."""
        values = [value for name, value in self.metrics().items() if all(word in name for word in words)]
        expect(values, f"no metric is named {' '.join(words)}")
        return sum(values)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def status(self, field):
        """A number of /proc/PID/status: Threads, or VmRSS in kB."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return int(re.search(rf"^{field}:\s+(\d+)", file.read(), re.MULTILINE)[1])

    def end(self, number=signal.SIGTERM):
        """Sends the signal, and returns the exit status."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
