"""Clients for load.py: requests from a fixed seed, and connections that note when each piece of text comes."""
import asyncio
import contextlib
import dataclasses
import json
import random
import time
import urllib.parse

FAULTS = ["cancelled", "slow", "cut", "malformed"]
WORDS = ("sea wind light stone river bread window garden letter morning silver quiet engine number harbour winter "
         "story road music paper").split()
LONGEST_S = 600  # a request that takes longer is lost


@dataclasses.dataclass(frozen=True)
class Question:
    """Equal questions must have equal answers."""
    prompt: str
    max_tokens: int
    seed: int
    temperature: float


@dataclasses.dataclass(frozen=True)
class Plan:
    """What one client does. fault: None, or what is wrong with it; after: pieces of text until it happens."""
    question: Question
    stream: bool
    fault: str | None
    after: int


@dataclasses.dataclass
class Result:
    plan: Plan
    outcome: str = "failed"  # answered, refused, cancelled, cut, malformed
    reason: str = ""
    text: str = ""
    tokens: int = 0
    planned: float = 0.0  # when the request should begin: a late client is the server's delay too
    times: list = dataclasses.field(default_factory=list)  # of each piece of text
    ended: float = 0.0


def questions(seed, count, longest_prompt, longest_answer):
    """Prompts and lengths: most are short, a few are long."""
    source = random.Random(seed)
    found = []
    for i in range(count):
        words = min(longest_prompt, int(source.lognormvariate(3, 1)) + 3)
        tokens = min(longest_answer, int(source.lognormvariate(3, 0.7)) + 2)
        prompt = " ".join(source.choice(WORDS) for _ in range(words)) + f"\nA story in {i + 2} words:"
        found.append(Question(prompt, tokens, source.randrange(1000), source.choice([0, 0.7, 1.0])))
    return found


def plans(seed, count, choices, share_of_faults):
    source = random.Random(seed)
    for _ in range(count):
        fault = source.choice(FAULTS) if source.random() < share_of_faults else None
        stream = fault in ("cancelled", "slow") or source.random() < 0.8
        yield Plan(source.choice(choices), stream, fault, source.randrange(0, 4))


class Place:
    """Where the server is, and which headers a request has."""

    def __init__(self, url, key=None, model=None):
        parts = urllib.parse.urlsplit(url)
        self.host, self.port, self.model = parts.hostname, parts.port or 80, model
        self.head = f"Host: {parts.netloc}\r\n" + (f"Authorization: Bearer {key}\r\n" if key else "")

    def request(self, plan):
        question = plan.question
        body = {"prompt": question.prompt, "max_tokens": question.max_tokens, "seed": question.seed,
                "temperature": question.temperature, "stream": plan.stream}
        if self.model:
            body["model"] = self.model
        data = json.dumps(body).encode()
        if plan.fault == "malformed":
            data = data[:-1] + b","
        return (f"POST /v1/completions HTTP/1.1\r\n{self.head}Content-Type: application/json\r\n"
                f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n").encode() + data


async def head(reader):
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    return int(lines[0].split()[1]), headers


async def parts(reader, headers):
    if headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            yield (await reader.readexactly(size + 2))[:-2]
    elif "content-length" in headers:
        yield await reader.readexactly(int(headers["content-length"]))
    else:
        while data := await reader.read(65536):
            yield data


async def events(reader, headers):
    """The objects of a stream; None at [DONE]."""
    held = b""
    async for part in parts(reader, headers):
        *whole, held = (held + part).split(b"\n\n")
        for event in whole:
            data = event.removeprefix(b"data: ")
            if data != event:
                yield None if data == b"[DONE]" else json.loads(data)


async def read_stream(reader, headers, result):
    """Takes the events of a stream, until its end or until the client leaves."""
    async for event in events(reader, headers):
        if event is None:
            result.outcome = "answered"
            return
        if "error" in event:
            result.reason = str(event["error"])
            return
        piece = "".join(choice.get("text") or "" for choice in event["choices"])
        if piece:
            result.times.append(time.monotonic())
            result.text += piece
        if result.plan.fault == "cancelled" and len(result.times) >= result.plan.after:
            result.outcome = "cancelled"
            return
        if result.plan.fault == "slow":
            await asyncio.sleep(0.05)
    result.reason = "the stream ended without [DONE]"


async def converse(place, result, reader, writer):
    plan, data = result.plan, place.request(result.plan)
    writer.write(data[:len(data) // 2] if plan.fault == "cut" else data)
    await writer.drain()
    if plan.fault == "cut":
        result.outcome = "cut"
        return
    status, headers = await head(reader)
    if status == 200 and plan.stream:
        await read_stream(reader, headers, result)
        return
    body = b"".join([part async for part in parts(reader, headers)])
    if plan.fault == "malformed" and 400 <= status < 600:
        result.outcome = "malformed"
    elif status == 200:
        answer = json.loads(body)
        result.text, result.tokens = answer["choices"][0]["text"], answer["usage"]["completion_tokens"]
        result.outcome = "answered"
    elif status == 429:
        result.outcome = "refused"
    else:
        result.reason = f"status {status}: {body[:200]!r}"


async def ask(place, plan, planned=None):
    result = Result(plan, planned=planned or time.monotonic())
    writer = None
    try:
        async with asyncio.timeout(LONGEST_S):
            reader, writer = await asyncio.open_connection(place.host, place.port)
            await converse(place, result, reader, writer)
    except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError, KeyError) as error:
        result.outcome, result.reason = "failed", f"{type(error).__name__}: {error}"
    finally:
        result.ended = time.monotonic()
        result.tokens = result.tokens or len(result.times)
        if writer and (plan.fault in ("cut", "cancelled") and plan.after % 2):
            writer.transport.abort()  # a reset instead of an end
        elif writer:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    return result


async def closed_loop(place, chosen, clients, note=lambda done: None):
    """Each client asks again as soon as it has its answer."""
    left, results = iter(chosen), []

    async def client():
        for plan in left:
            results.append(await ask(place, plan))
            note(len(results))

    await asyncio.gather(*(client() for _ in range(clients)))
    return results


async def open_loop(place, chosen, rate, seed):
    """Requests come by themselves, at random (Poisson), whether the server keeps up or not."""
    source, at, tasks = random.Random(seed), time.monotonic(), []
    for plan in chosen:
        at += source.expovariate(rate)
        await asyncio.sleep(max(0, at - time.monotonic()))
        tasks.append(asyncio.create_task(ask(place, plan, at)))
    return await asyncio.gather(*tasks)
