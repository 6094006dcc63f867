"""Start and end of a server: options, files, keys, deadlines, signals."""
import contextlib
import ctypes
import os
import resource
import signal
import socket
import struct
import subprocess
import tempfile
import time

from server import Answer, Connection, Stream, Wrong, expect, free_port, request, until
from service_checks import CHAT, COMPLETIONS, LONG, SHORT, load, send_long_bodies, send_only, text

OPTIONS = None  # each check starts what it needs
CHECKS = []
SMALL = ["--context", 512, "--sequences", 1, "--queue", 4]
LASTING = 60


def check(function):
    CHECKS.append(function)
    return function


def run(start, *arguments):
    """Exit status, stdout and stderr of a program that ends by itself."""
    done = subprocess.run([start.program, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def refuses(start, *arguments, word=""):
    """The program ends with status 2 and one sentence, which has the word."""
    status, _, said = run(start, *arguments)
    expect(status == 2, f"{' '.join(map(str, arguments))}: status {status}, and '{said}'")
    expect(0 < len(said.strip().splitlines()) <= 2, f"expected a sentence, got '{said}'")
    expect(word in said, f"expected '{word}' in '{said}'")


@check
def help_lists_the_options(start):
    """--help names every option, and the status is 0."""
    status, said, _ = run(start, "--help")
    expect(status == 0, f"status {status}")
    for option in ["model", "listen", "unix", "api-key-file", "context", "sequences", "pages", "queue", "lanes",
                   "backend", "weights", "max-tokens", "deadline", "grace"]:
        expect(f"--{option}" in said, f"--help does not name --{option}")


@check
def wrong_options(start):
    """An option that is unknown, or has a value out of range, is a sentence and status 2."""
    port = free_port()
    model = ["--model", start.model, "--listen", f"127.0.0.1:{port}"]
    refuses(start, *model, "--nonsense", word="--nonsense")
    for option, value in [("--context", "many"), ("--context", 0), ("--context", -5), ("--sequences", 0),
                          ("--sequences", 100000), ("--queue", -1), ("--lanes", 3), ("--backend", "tpu"),
                          ("--weights", "int3"), ("--listen", "nowhere"), ("--listen", "127.0.0.1:99999"),
                          ("--deadline", "x"), ("--pages", 99999999999999), ("--max-tokens", 0),
                          ("--api-key-file", "/nothing"), ("--unix", "")]:
        refuses(start, *model, option, value)
    refuses(start, *model, "--context", word="--context")


@check
def wrong_models(start):
    """A model that is missing, cut or no model is a sentence and status 2."""
    listen = ["--listen", f"127.0.0.1:{free_port()}"]
    with tempfile.TemporaryDirectory() as folder:
        refuses(start, "--model", f"{folder}/nothing.gguf", *listen, word="nothing.gguf")
        with open(start.model, "rb") as file:
            data = file.read(4 << 20)
        for name, part in [("cut", data), ("short", data[:100]), ("empty", b""), ("text", b"hello\n" * 100)]:
            path = f"{folder}/{name}.gguf"
            with open(path, "wb") as file:
                file.write(part)
            refuses(start, "--model", path, *listen)
        refuses(start, "--model", folder, *listen)
        fewer_rows(start.model, f"{folder}/rows.gguf")
        refuses(start, "--model", f"{folder}/rows.gguf", *listen, word="tokenizer")


def fewer_rows(model, path):
    """Writes the model with one row less in its embedding than its tokenizer has tokens."""
    with open(model, "rb") as file:
        data = bytearray(file.read())
    name = b"token_embd.weight"
    rows = data.index(struct.pack("<Q", len(name)) + name) + 8 + len(name) + 4 + 8  # after the rank and the columns
    struct.pack_into("<Q", data, rows, struct.unpack_from("<Q", data, rows)[0] - 1)
    with open(path, "wb") as file:
        file.write(data)


@check
def port_in_use(start):
    """A port that is in use is a sentence and status 2."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        refuses(start, "--model", start.model, "--listen", f"127.0.0.1:{port}", *SMALL, word=str(port))


@check
def wrong_keys(start):
    """A file of keys with what no header can have is a sentence and status 2: nobody would know the keys."""
    with tempfile.NamedTemporaryFile("wb") as file:
        for data in [b"", b"\n\r\n", b"sk-key\0more\n", "sk-key\n".encode("utf-16"), "sk-key\n".encode("utf-16-le"),
                     b"\xef\xbb\xbfsk-key\n", b"# keys\nsk-key\n", b"sk-key \n", b"sk-one\rsk-two\r"]:
            file.truncate(0)
            file.seek(0)
            file.write(data)
            file.flush()
            refuses(start, "--model", start.model, "--listen", "127.0.0.1:0", "--api-key-file", file.name, word="key")


@check
def keys(start):
    """With --api-key-file a request needs one of its keys; the pages of operation need none."""
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("sk-first-key\nsk-second-key\n")
        file.flush()
        with start(*SMALL, "--api-key-file", file.name) as server:
            for key in ["sk-first-key", "sk-second-key"]:
                answer = server.ask(COMPLETIONS, SHORT, headers={"Authorization": f"Bearer {key}"})
                expect(answer.status == 200, f"{key}: {answer.status}")
            for value in [None, "", "Bearer", "Bearer ", "Bearer sk-first", "Bearer sk-first-keyy", "sk-first-key",
                          "Basic sk-first-key", "Bearer sk-first-key\tsk-second-key", "Bearer " + "k" * 5000]:
                for path, body in [(COMPLETIONS, SHORT), ("/v1/models", None), (CHAT, b"{")]:
                    answer = server.ask(path, body, headers={"Authorization": value} if value is not None else {})
                    answer.is_error(401)
                    expect("www-authenticate" in answer.headers, "401 without WWW-Authenticate (RFC 9110, 15.5.2)")
            for path in ["/health", "/ready"]:
                expect(server.ask(path).status == 200, f"{path} needs a key")
            expect("first" not in server.said(), "a key is in the log")
            bodies_without_a_key(server)


def bodies_without_a_key(server):
    """Bodies that will be refused are not kept."""
    message, before = request("POST", COMPLETIONS, {"prompt": "a" * 1000000}), server.status("VmRSS")
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(Connection(server)).send(message[:-1]) for _ in range(20)]
        expect(server.ask("/health").status == 200, "the server does not go on")
        grown = server.status("VmRSS") - before
        expect(grown < 4096, f"{grown} kB more memory for 20 MB of bodies without a key")
        for connection in connections:
            connection.send(message[-1:]).answer().is_error(401)


@check
def unix_socket(start):
    """--unix listens on a path; SIGTERM removes it, and one that a killed server left is taken over."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        with start(*SMALL, path=path) as server:
            with Connection(server) as connection:
                answer = connection.send(request("POST", COMPLETIONS, SHORT)).answer()
                expect(answer.status == 200, f"{answer.status}: {answer.body[:200]!r}")
            Stream(server, COMPLETIONS, SHORT).begin().whole()
            refuses(start, "--model", start.model, "--unix", path, *SMALL, word=path)
            expect(server.ready(), "the second server harmed the first")
            expect(server.end() == 0, "the exit status")
            expect(not os.path.exists(path), "the socket's path is left")
        with start(*SMALL, path=path) as server:
            server.process.kill()
            server.process.wait()
            expect(os.path.exists(path), "a killed server's path is gone")
        with start(*SMALL, path=path) as server:
            expect(server.end() == 0, "the exit status")
        with open(path, "w", encoding="ascii") as file:
            file.write("a file of somebody's")
        refuses(start, "--model", start.model, "--unix", path, *SMALL, word=path)
        expect(os.path.getsize(path) > 0, "a file that is no socket was removed")


def lasting_streams(server):
    """Streams that take one sequence some seconds, one after the other, on a GPU too."""
    return [Stream(server, COMPLETIONS, {**LONG, "max_tokens": 1000}).begin() for _ in range(LASTING)]


def was_cut(stream):
    """Reads a stream to its end, which is whole, or an error event or a missing last chunk."""
    events = []
    try:
        events.extend(stream)
    except Wrong:
        expect(stream.connection.closed(), "more than the answer")
    else:
        expect(stream.done or "error" in events[-1], f"the last event is {events[-1]}")
    expect(stream.done or stream.finish is None, f"an end that looks whole: {events[-1:]}")
    return not stream.done


@check
def deadline_in_the_queue_and_in_the_answer(start):
    """Past the deadline, a request that waits is 504, and a stream ends with an error event."""
    with start("--context", 1024, "--sequences", 1, "--queue", LASTING + 1, "--deadline", 3) as server:
        streams = lasting_streams(server)
        waits = send_only(server, {**LONG, "max_tokens": 990})
        answer = waits.answer()
        waits.close()
        answer.is_error(504)
        cut = [stream for stream in streams if was_cut(stream)]
        expect(all("error" in stream.events[-1] for stream in cut), "a stream ended without an error event")
        expect(any(stream.text for stream in cut), f"none of {len(cut)} streams was cut in its answer")
        until(lambda: load(server) == 0 and server.metric("pages_used") == 0, "pages stay in use")
        expect(text(server), "the server does not go on")
    return f"{len(streams) - len(cut)} answers were whole"


def trickle(connection, data):
    """Sends a byte every 0.2 s. How long until the connection is closed, at most the data's length."""
    begin = time.monotonic()
    connection.socket.setblocking(False)
    for i in range(len(data)):
        time.sleep(0.2)
        try:
            connection.socket.send(data[i:i + 1])
            if connection.socket.recv(1) == b"":
                break
        except BlockingIOError:
            continue
        except OSError:
            break
    return time.monotonic() - begin


@check
def requests_that_never_end(start):
    """A client that sends a byte of its headers or its body now and then is closed; a long answer is not."""
    message = request("POST", COMPLETIONS, SHORT, [("X", "a" * 200)])
    with start("--context", 1024, "--sequences", 1, "--idle", 1) as server:
        with Connection(server) as connection:
            in_headers = trickle(connection, message)
        with Connection(server) as connection:
            in_body = trickle(connection.send(request("POST", COMPLETIONS, b"", [("Content-Length", 200)])), b" " * 199)
        expect(2 <= in_headers < 8 and 2 <= in_body < 8, f"closed after {in_headers:.1f} and {in_body:.1f} s")
        begin = time.monotonic()
        Stream(server, COMPLETIONS, {**LONG, "max_tokens": 300}).begin().whole()
        lasted = time.monotonic() - begin
    return f"after {in_headers:.1f} and {in_body:.1f} s; an answer lasted {lasted:.1f} s"


@check
def few_pages(start):
    """With few pages, requests wait for pages; one that can never have them is refused."""
    with start("--context", 1024, "--sequences", 4, "--queue", 8, "--pages", 7) as server:
        expected = text(server)
        answer = server.ask(COMPLETIONS, {"prompt": "a b c d " * 200, "max_tokens": 10})
        expect(answer.status in (400, 413), f"a prompt of 800 tokens with 7 pages: {answer.status}")
        answer.is_error(answer.status)
        connections = [send_only(server, {**SHORT, "max_tokens": 150}) for _ in range(6)]
        texts = []
        for connection in connections:
            answer = connection.answer()
            expect(answer.status == 200, f"{answer.status}: {answer.body[:200]!r}")
            texts.append(answer.json()["choices"][0]["text"])
            connection.close()
        expect(len(set(texts)) == 1 and texts[0].startswith(expected), f"six texts: {texts}")
        until(lambda: server.metric("pages_used") == 0, "pages stay in use")


@check
def two_lanes(start):
    """With two lanes the answers are the same as with one."""
    bodies = [{"prompt": f"{'word ' * 40 * i}Number {i} is", "max_tokens": 24, "temperature": 1, "seed": i}
              for i in range(5)]
    texts = []
    for lanes in [1, 2]:
        with start("--context", 512, "--sequences", 4, "--lanes", lanes) as server:
            connections = [send_only(server, body) for body in bodies]
            texts.append([connection.answer().json()["choices"][0]["text"] for connection in connections])
    expect(texts[0] == texts[1], f"{texts[0]} and {texts[1]}")


@check
def few_descriptors(start):
    """A server that has no descriptor left goes on when some are free again."""
    def limits():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    with start(*SMALL, limits=limits) as server:
        connections = []
        for _ in range(100):
            connections.append(Connection(server))
        time.sleep(0.5)
        expect(server.process.poll() is None, f"it ended: {server.said()}")
        for connection in connections:
            connection.close()
        until(server.ready, "it is not ready again")
        expect(text(server), "no answer")


def refused(server):
    """A connection is refused, or its request is answered with 503."""
    try:
        return server.ask(COMPLETIONS, SHORT).status == 503
    except OSError:
        return True


@check
def sigterm_lets_streams_end(start):
    """After SIGTERM the streams and what waits end whole, new requests are refused, and the exit status is 0."""
    with start(*SMALL, "--grace", 100) as server:
        streams = [Stream(server, COMPLETIONS, {**LONG, "max_tokens": 60}) for _ in range(2)]
        whole = send_only(server, {**SHORT, "max_tokens": 5})
        streams[0].begin().first(2)
        until(lambda: load(server) == 3, "three requests are not there")
        server.process.send_signal(signal.SIGTERM)
        until(lambda: refused(server), "new requests are still answered")
        for i, stream in enumerate(streams):
            (stream if i == 0 else stream.begin()).whole()
            expect(stream.finish == "length", f"stream {i} ended with {stream.finish}")
        expect(whole.answer().status == 200, "a request that waited")
        expect(server.process.wait(60) == 0, f"status {server.process.returncode}: {server.said()}")


@check
def not_ready_while_it_ends(start):
    """After SIGTERM a connection that is there already hears that the server is not ready, and it is closed."""
    with start(*SMALL, "--grace", 100) as server, Connection(server) as connection:
        expect(connection.send(request("GET", "/ready")).answer().status == 200, "not ready")
        stream = Stream(server, COMPLETIONS, {**LONG, "max_tokens": 100}).begin().first()
        server.process.send_signal(signal.SIGTERM)
        until(lambda: refused(server), "new requests are still answered")
        try:
            answer = connection.send(request("GET", "/ready")).answer()
        except (OSError, Wrong):
            answer = Answer(503, {}, b"")  # it was closed already
        expect(answer.status == 503, f"/ready while it ends: {answer.status}")
        stream.whole()
        expect(server.process.wait(60) == 0, f"status {server.process.returncode}: {server.said()}")


@check
def grace_ends(start):
    """A stream that is longer than the grace is cut, so that its client can tell, and the exit status is 0."""
    with start("--context", 1024, "--sequences", 1, "--queue", LASTING, "--grace", 1) as server:
        streams = lasting_streams(server)
        streams[0].first()
        server.process.send_signal(signal.SIGTERM)
        cut = [was_cut(stream) for stream in streams]
        expect(any(cut), "no stream was cut")
        expect(server.process.wait(60) == 0, f"status {server.process.returncode}: {server.said()}")


@check
def a_second_signal_cancels(start):
    """A second SIGTERM does not wait for the grace: streams are cut at once, and the exit status is 0."""
    with start("--context", 1024, "--sequences", 1, "--queue", LASTING, "--grace", 100) as server:
        streams = lasting_streams(server)
        streams[0].first()
        server.process.send_signal(signal.SIGTERM)
        until(lambda: refused(server), "new requests are still answered")
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        cut = [was_cut(stream) for stream in streams]
        lasted = time.monotonic() - begin
        expect(any(cut) and lasted < 20, f"{cut.count(True)} streams were cut, after {lasted:.1f} s")
        expect(server.process.wait(60) == 0, f"status {server.process.returncode}: {server.said()}")
    return f"after {lasted:.1f} s"


@contextlib.contextmanager
def replays_hang(server):
    """Stops all threads but the HTTP thread, as a kernel that hangs would."""
    seize, interrupt, any_thread = 0x4206, 0x4207, 0x40000000
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    threads = {int(name) for name in os.listdir(f"/proc/{server.process.pid}/task")} - {server.process.pid}
    for thread in threads:
        for what in [seize, interrupt]:
            expect(libc.ptrace(what, thread, None, None) == 0, f"ptrace: {os.strerror(ctypes.get_errno())}")

    def ended():
        """A process has ended when all threads that are traced were waited for."""
        for thread in threads:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(thread, any_thread | os.WNOHANG)
        return server.process.poll() is not None

    try:
        yield ended
    finally:
        server.process.kill()
        until(ended, "it cannot be killed")


@check
def replays_that_hang(start):
    """Where a replay does not end, /health says so, and a signal ends the server with status 1."""
    with start("--context", 1024, "--sequences", 1, "--grace", 1) as server:
        stream = Stream(server, COMPLETIONS, LONG).begin().first()
        with replays_hang(server) as ended:
            until(lambda: server.ask("/health").status == 503, "/health does not notice")
            expect(ended() is False, f"it ended: {server.said()}")
            server.process.send_signal(signal.SIGTERM)
            until(ended, "the signal does not end it", 30)
        stream.connection.close()
        expect(server.process.returncode == 1, f"status {server.process.returncode}: {server.said()}")
        expect("replay" in server.said().splitlines()[-1], f"no sentence says why: {server.said()}")


@check
def idle_connections_do_not_delay_the_end(start):
    """Idle and half-sent requests do not keep a server from ending; SIGINT ends it as SIGTERM does."""
    for number in [signal.SIGTERM, signal.SIGINT]:
        with start(*SMALL, "--grace", 5) as server:
            with Connection(server) as idle, Connection(server) as half:
                idle.send(request("GET", "/health")).answer()
                half.send(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n")
                expect(server.end(number) == 0, f"status {server.process.returncode}: {server.said()}")


@check
def bodies_that_wait_do_not_delay_the_end(start):
    """A signal ends the server while whole bodies wait to be read."""
    with start(*SMALL, "--grace", 0) as server, contextlib.ExitStack() as stack:
        connections = send_long_bodies(server, stack, 60)
        expect(server.end() == 0, f"status {server.process.returncode}: {server.said()}")
        answered = sum(not connection.closed() for connection in connections)
    return f"after {answered} of 60"


@check
def the_port_is_free_again(start):
    """A server starts on the port of one that ended while clients were connected."""
    with start(*SMALL) as server, Connection(server) as connection:
        connection.send(request("GET", "/health")).answer()
        expect(server.end() == 0, "the exit status")
        command = [start.program, "--model", start.model, "--listen", f"127.0.0.1:{server.port}", *map(str, SMALL)]
        again = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            server.process = again
            until(server.ready, "the second server is not ready")
            again.send_signal(signal.SIGTERM)
            expect(again.wait(60) == 0, f"the second server's status is {again.returncode}")
        finally:
            again.kill()
            again.wait()
