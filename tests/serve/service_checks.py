"""The service: clients that are slow, gone, stopped or many, and what they may cost the others."""
import concurrent.futures
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

from server import PATIENCE, Connection, Stream, expect, request, until

SEQUENCES, QUEUE = 2, 6
OPTIONS = ["--context", 1024, "--sequences", SEQUENCES, "--queue", QUEUE]
CHECKS, SLOW = [], []
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
LONG = {"prompt": "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16", "max_tokens": 900, "temperature": 0}
SHORT = {"prompt": "The sky is", "max_tokens": 8, "temperature": 0}
PROMPT_OF_900 = {"prompt": "a b c d " * 225, "max_tokens": 100, "temperature": 0}


def check(function):
    CHECKS.append(function)
    return function


def slow(function):
    SLOW.append(function)
    return check(function)


def used(server):
    return server.metric("pages_used")


def cancelled(server):
    return server.metric("cancelled_total")


def load(server):
    """Requests that run or wait."""
    return server.metric("active_requests") + server.metric("waiting_requests")


def text(server, body=SHORT):
    answer = server.ask(COMPLETIONS, body)
    expect(answer.status == 200, f"status {answer.status}: {answer.body[:300]!r}")
    return answer.json()["choices"][0]["text"]


@contextlib.contextmanager
def idle_around(server):
    """Before and after, the server has nothing to do: no request, and no page in use."""
    until(lambda: load(server) == 0, "requests run that nobody waits for")
    before = used(server)
    yield
    until(lambda: load(server) == 0, "a request goes on")
    until(lambda: used(server) == before, f"not {before} pages in use, as before")


@contextlib.contextmanager
def all_sequences_busy(server, body=LONG):
    """Streams in all sequences, which have begun to answer."""
    streams = [Stream(server, COMPLETIONS, body) for _ in range(SEQUENCES)]
    try:
        yield [stream.begin().first() for stream in streams]
    finally:
        for stream in streams:
            stream.connection.close()


def send_only(server, body, path=COMPLETIONS):
    return Connection(server).send(request("POST", path, body))


def cancelled_grows(server, before, count):
    until(lambda: cancelled(server) >= before + count, f"not {count} more requests are counted as cancelled")


@check
def client_gone_in_the_queue(server):
    """A request whose client goes while it waits is cancelled; those that run go on."""
    with idle_around(server), all_sequences_busy(server) as streams:
        before = cancelled(server)
        waiting = [send_only(server, SHORT), send_only(server, {**SHORT, "stream": True}), send_only(server, SHORT)]
        until(lambda: load(server) == SEQUENCES + 3, "three requests do not wait")
        waiting[0].close()
        waiting[1].close()
        waiting[2].reset()
        cancelled_grows(server, before, 3)
        for stream in streams:
            stream.first(3)


@check
def client_gone_in_the_prompt(server):
    """So is one whose prompt is being read."""
    for how in ["close", "reset"]:
        with idle_around(server):
            before = cancelled(server)
            connection = send_only(server, PROMPT_OF_900)
            until(lambda: load(server) == 1, "no request runs")
            getattr(connection, how)()
            cancelled_grows(server, before, 1)


@check
def client_gone_in_the_answer(server):
    """So is one that waits for a whole answer."""
    for how in ["close", "reset"]:
        with idle_around(server):
            before = cancelled(server)
            connection = send_only(server, LONG)
            until(lambda: used(server) > 0, "no page is in use")
            time.sleep(0.3)
            getattr(connection, how)()
            cancelled_grows(server, before, 1)


@check
def client_gone_in_the_stream(server):
    """So is one that reads a stream."""
    for how in ["close", "reset"]:
        for events in [0, 1, 5]:
            with idle_around(server):
                before = cancelled(server)
                stream = Stream(server, COMPLETIONS, LONG).begin()
                stream.first(events)
                getattr(stream.connection, how)()
                cancelled_grows(server, before, 1)


def counted(server):
    """Requests for answers that were taken or ended."""
    return server.metric("requests_total"), server.metric("ended_total")


@check
def client_gone_with_its_request(server):
    """A client that goes as soon as its request is sent costs at most a step, and no record."""
    message = request("POST", COMPLETIONS, LONG)
    with idle_around(server):
        for how in ["close", "reset"] * (SEQUENCES + QUEUE):
            answered = server.metric("answered_tokens_total")
            connection = Connection(server).send(message)
            getattr(connection, how)()
            until(lambda: len(set(counted(server))) == 1, "a request goes on")
            more = server.metric("answered_tokens_total") - answered
            expect(more < LONG["max_tokens"] / 2, f"{more:.0f} tokens for a client that has gone")
        text(server)


@check
def client_gone_with_the_end_of_its_body(server):
    """So does one that goes together with the last bytes of its body."""
    message = request("POST", COMPLETIONS, LONG)
    with idle_around(server):
        for _ in range(2 * (SEQUENCES + QUEUE)):
            with Connection(server) as connection:
                connection.send(message[:-20])
                time.sleep(0.05)  # the server has the headers
                connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
                connection.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
                connection.send(message[-20:])  # leaves with the end, as one segment
        until(lambda: load(server) == 0, "a request goes on")
        text(server)


@check
def half_closed(server):
    """A client that ends its own direction has left, or gets its answer: never one that looks whole and is not."""
    expected, whole = text(server), 0
    with idle_around(server):
        for stream in [False, True]:
            with Connection(server) as connection:
                connection.send(request("POST", COMPLETIONS, {**SHORT, "stream": stream}, [("Connection", "close")]))
                connection.socket.shutdown(socket.SHUT_WR)
                data = connection.file.read()
            if stream:
                whole += b"[DONE]" in data
                expect(data.endswith(b"\r\n0\r\n\r\n") == (b"[DONE]" in data), f"an end without [DONE]: {data!r}")
            else:
                whole += data != b""
                expect(data == b"" or json.dumps(expected).encode() in data, f"half an answer: {data!r}")
        with Connection(server) as connection:
            connection.socket.shutdown(socket.SHUT_WR)
            expect(connection.closed(), "bytes to a client that asked for nothing")
    return f"{whole} of 2 were answered"


def read_slowly(server, tokens):
    """A client that asks for a stream and never reads; the others get the same answers as without it."""
    expected = text(server)
    connection = Connection(server, receive_bytes=2048)
    connection.send(request("POST", COMPLETIONS, {**LONG, "max_tokens": tokens, "logprobs": 1, "stream": True}))
    until(lambda: load(server) == 1, "no request runs")
    for _ in range(5):
        expect(text(server) == expected, "another text beside a slow reader")
    return connection


@check
def slow_reader(server):
    """A client that never reads holds up nobody, nor the pages of its own request."""
    before = server.descriptors()
    with idle_around(server):
        connection = read_slowly(server, 150)
        until(lambda: load(server) == 0, "the slow reader's request goes on")
    connection.close()
    until(lambda: server.descriptors() <= before, "the slow reader's connection stays")


@slow
def slow_reader_is_cut(server):
    """A client that never reads is cut after a time without a byte."""
    before = server.descriptors()
    with idle_around(server):
        connection = read_slowly(server, 900)
        until(lambda: server.descriptors() <= before, "the connection stays", 2 * PATIENCE)
        connection.close()


@check
def stopped_client(server):
    """A client that is stopped (SIGSTOP) and goes on later gets its whole answer, or the end of its connection."""
    script = ("import http.client,json,sys\n"
              f"c = http.client.HTTPConnection('127.0.0.1', {server.port})\n"
              f"c.request('POST', '{COMPLETIONS}', json.dumps({{**{LONG!r}, 'max_tokens': 60, 'stream': True}}),"
              " {'Content-Type': 'application/json'})\n"
              "r = c.getresponse()\n"
              "print(r.status, flush=True)\n"
              "print(r.read()[-20:])\n")
    with idle_around(server), tempfile.TemporaryFile("w+") as output:
        child = subprocess.Popen([sys.executable, "-c", script], stdout=output, stderr=output)
        until(lambda: output.seek(0) == 0 and output.read(), "the client has no answer")
        child.send_signal(signal.SIGSTOP)
        for _ in range(3):
            text(server)
        until(lambda: load(server) == 0, "its request goes on")
        child.send_signal(signal.SIGCONT)
        status = child.wait(60)
        output.seek(0)
        said = output.read()
        expect(status != 0 or "DONE" in said, f"status {status}, and not the end: {said}")


@check
def full_queue(server):
    """When the queue is full a request is 429 with Retry-After, at once, and the others keep their places."""
    with idle_around(server):
        with all_sequences_busy(server) as streams:
            waiting = []
            for i in range(QUEUE):
                waiting.append(send_only(server, {**SHORT, "stream": i % 2 == 0}))
                until(lambda: load(server) == SEQUENCES + len(waiting), f"request {len(waiting)} does not wait")
            for stream in [False, True]:
                answer = server.ask(CHAT, {"messages": [{"role": "user", "content": "Hi"}], "stream": stream})
                answer.is_error(429)
                expect(answer.headers.get("retry-after", "").isdigit() and int(answer.headers["retry-after"]) > 0,
                       f"Retry-After is '{answer.headers.get('retry-after')}'")
            expect(server.ask("/ready").status in (200, 503), "/ready")
            expect(server.ask("/health").status == 200, "a full queue is not ill health")
            expect(load(server) == SEQUENCES + QUEUE, "those that wait lost their places")
            for stream in streams:
                stream.first(2)
        for i, connection in enumerate(waiting):
            expect(connection.answer().status == 200, f"request {i} of the queue")
            connection.close()


@check
def prefixes_are_shared(server):
    """A prompt that begins as an earlier one did has tokens in the cache; the answer is the same."""
    with idle_around(server):
        system = "You are the keeper of a lighthouse. " * 20
        def ask(question):
            answer = server.ask(CHAT, {"messages": [{"role": "system", "content": system},
                                                    {"role": "user", "content": question}],
                                       "temperature": 1, "seed": 5, "max_tokens": 16}).json()
            return answer["choices"][0]["message"]["content"], answer["usage"]

        first, before = ask("What do you see?")
        again, after = ask("What do you see?")
        cached = after["prompt_tokens_details"]["cached_tokens"]
        expect(0 < cached < after["prompt_tokens"] and cached % 64 == 0, f"usage at the second time: {after}")
        expect(before["prompt_tokens"] == after["prompt_tokens"], f"{before} and {after}")
        expect(first == again, f"'{first}' and then '{again}'")
        other = ask("What do you hear?")[1]["prompt_tokens_details"]["cached_tokens"]
        expect(other > 0, "another question shares nothing")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            expect({one[0] for one in pool.map(ask, ["What do you see?"] * 4)} == {first}, "other answers at once")
    return f"{cached} of {after['prompt_tokens']} tokens"


@check
def many_connections(server):
    """Many connections at once are served, and so is a stream beside them."""
    before, count = server.descriptors(), server.connections
    with idle_around(server):
        stream = Stream(server, COMPLETIONS, {**LONG, "max_tokens": 200}).begin().first()
        connections = []
        try:
            for _ in range(count):
                connections.append(Connection(server))
            for connection in connections:
                connection.send(request("GET", "/health"))
            statuses = [connection.answer().status for connection in connections]
            expect(statuses == [200] * count, f"{statuses.count(200)} of {count} connections were answered")
            for connection in connections[::7]:
                connection.send(request("POST", "/tokenize", {"content": "a b"}))
            for connection in connections[::7]:
                expect(connection.answer().status == 200, "a second request")
            stream.whole()
        finally:
            for connection in connections:
                connection.close()
            stream.connection.close()
    until(lambda: server.descriptors() <= before, f"more than {before} descriptors")
    return f"{count} connections"


def send_long_bodies(server, stack, count):
    """Bodies that take long to read, whose last bytes come together."""
    message = request("POST", COMPLETIONS, b'{"prompt": [' + b",".join([b"1"] * 500_000) + b"]}")
    connections = [stack.enter_context(Connection(server)).send(message[:-1]) for _ in range(count)]
    for connection in connections:
        connection.send(message[-1:])
    return connections


@check
def long_bodies_at_once(server):
    """Long bodies are read one after the other: what another client asks for comes before the last of them."""
    with contextlib.ExitStack() as stack, idle_around(server):
        connections = send_long_bodies(server, stack, 40)
        answer = server.ask("/health")
        waiting = sum(not select.select([connection.socket], [], [], 0)[0] for connection in connections)
        expect(answer.status == 200 and waiting, f"/health is {answer.status}, after {40 - waiting} bodies")
        for connection in connections:
            connection.answer().is_error(413)
        for connection in send_long_bodies(server, stack, 40):
            connection.reset()
    return f"after {40 - waiting} of 40"


@check
def bodies_that_never_end(server):
    """Clients that do not end their bodies take a bounded part of the memory, and the server goes on without them."""
    body = json.dumps({"content": "a b", "user": "a" * 1000000}).encode()
    message, before = request("POST", "/tokenize", body), server.status("VmRSS")
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(Connection(server)).send(message[:-1]) for _ in range(100)]
        expect(server.ask("/health").status == 200, "the server does not go on")
        time.sleep(1)  # until it has read them
        grown = server.status("VmRSS") - before
        expect(grown < 160 << 10, f"{grown} kB more memory for 100 MB of bodies")
        answers = [connection.send(message[-1:]).answer() for connection in connections]
    refused = [answer for answer in answers if answer.status != 200]
    expect(30 < len(refused) < 100, f"{len(refused)} of 100 bodies were refused")
    for answer in refused:
        answer.is_error(503)
        expect("retry-after" in answer.headers, "503 without Retry-After")
    expect(server.ask("/tokenize", body).status == 200, "there is no room later")
    return f"{len(refused)} were refused, {grown} kB"


def one_of_each(server):
    """Requests of every kind, good and bad, and clients that go."""
    text(server, {**SHORT, "max_tokens": 1})
    Stream(server, COMPLETIONS, {**SHORT, "max_tokens": 2}).begin().whole()
    server.ask("/tokenize", {"content": "a b c"})
    server.ask("/tokenize", b"{")
    server.ask("/nothing")
    server.ask("/v1/models")
    server.ask(CHAT, {"messages": [{"role": "user", "content": "Hi"}], "temperature": 9})
    for how in ["close", "reset"]:
        stream = Stream(server, COMPLETIONS, LONG).begin().first(2)
        getattr(stream.connection, how)()
        connection = Connection(server)
        connection.send(request("POST", COMPLETIONS, b"{", [("Content-Length", 50)]))
        time.sleep(0.05)  # an end that comes with the first bytes is noticed after the idle time only
        getattr(connection, how)()
    with Connection(server) as connection:
        connection.send(b"nonsense\r\n\r\n").closed()


@check
def nothing_is_left(server):
    """Requests of every kind leave no descriptor, thread, page or memory behind."""
    with idle_around(server):
        for _ in range(2):
            one_of_each(server)
    until(lambda: server.descriptors() <= descriptors_at_rest(server), "connections stay")
    descriptors, threads, memory = server.descriptors(), server.status("Threads"), server.status("VmRSS")
    with idle_around(server):
        for _ in range(8):
            one_of_each(server)
    until(lambda: server.descriptors() <= descriptors, f"more than {descriptors} descriptors")
    expect(server.status("Threads") == threads, f"{server.status('Threads')} threads instead of {threads}")
    grown = server.status("VmRSS") - memory
    expect(grown < 1024, f"{grown} kB more memory after 88 requests")
    return f"{descriptors} descriptors, {threads} threads, {grown} kB more"


def sockets_of(port):
    """The kernel's numbers of the sockets with this local port. CUDA's driver has a socket of its own."""
    found = set()
    for table in ["tcp", "tcp6"]:
        with contextlib.suppress(FileNotFoundError), open(f"/proc/net/{table}", encoding="ascii") as lines:
            rows = [line.split() for line in lines][1:]
            found |= {f"socket:[{row[9]}]" for row in rows if int(row[1].rpartition(":")[2], 16) == port}
    return found


def descriptors_at_rest(server):
    """Descriptors other than connections with a client."""
    folder = f"/proc/{server.process.pid}/fd"
    links, sockets = [], sockets_of(server.port)
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"{folder}/{name}"))
    return len(links) - sum(link in sockets for link in links) + 1


@check
def small_requests_keep_memory_flat(server):
    """Two thousand small requests leave the memory as it was."""
    def some(count):
        with Connection(server) as connection:
            for i in range(count):
                body = {"content": "word " * (i % 50)} if i % 3 else {"messages": "wrong", "a": ["b"] * (i % 20)}
                answer = connection.send(request("POST", "/tokenize", body)).answer()
                expect(answer.status == (200 if i % 3 else 400), f"request {i}: {answer.status}")

    some(1000)
    before = server.status("VmRSS")
    some(2000)
    grown = server.status("VmRSS") - before
    expect(grown < 512, f"{grown} kB more memory")
    return f"{grown} kB more"
