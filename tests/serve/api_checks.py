"""The API: what OpenAI's clients send and expect, and the pages beside it."""
import concurrent.futures
import re

from server import METRIC, Connection, Stream, expect, request

OPTIONS = ["--context", 512, "--sequences", 4, "--queue", 32]
CHECKS = []
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
STORY = {"prompt": "Once upon a time, in a small village by the sea,", "max_tokens": 40, "temperature": 0}


def check(function):
    CHECKS.append(function)
    return function


def chat(text, **more):
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 24, **more}


def complete(server, body):
    """Text, finish reason and usage of a completion without stream."""
    answer = server.ask(COMPLETIONS, body)
    expect(answer.status == 200, f"status {answer.status}: {answer.body[:300]!r}")
    whole = answer.json()
    return whole["choices"][0]["text"], whole["choices"][0]["finish_reason"], whole["usage"]


def is_usage(usage, most_tokens):
    expect(usage["prompt_tokens"] > 0 and 0 <= usage["completion_tokens"] <= most_tokens, f"usage {usage}")
    expect(usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"], f"the sum in {usage}")
    expect(0 <= usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"], f"cached tokens in {usage}")


@check
def models(server):
    """/v1/models names the model; that name is taken, another one is 404."""
    answer = server.ask("/v1/models").json()
    expect(answer["object"] == "list" and len(answer["data"]) == 1, f"{answer}")
    model = answer["data"][0]
    expect(model["object"] == "model" and isinstance(model["id"], str) and model["id"], f"{model}")
    expect(server.ask(CHAT, chat("Hi", max_tokens=1, model=model["id"])).status == 200, "its own name is refused")
    error = server.ask(CHAT, chat("Hi", model="gpt-4")).is_error(404, "gpt-4")
    expect(error["param"] in ("model", None), f"param is {error['param']}")


@check
def chat_whole(server):
    """A chat without stream is one object, as OpenAI's servers send it."""
    answer = server.ask(CHAT, chat("What is the capital of France?"))
    expect(answer.status == 200 and answer.headers["content-type"].startswith("application/json"), f"{answer.status}")
    whole = answer.json()
    expect(whole["object"] == "chat.completion" and re.fullmatch(r"chatcmpl-[\w-]+", whole["id"]), f"{whole}")
    expect(isinstance(whole["created"], int) and whole["created"] > 1.7e9, f"created is {whole['created']}")
    choice, = whole["choices"]
    expect(choice["index"] == 0 and choice["finish_reason"] in ("stop", "length"), f"{choice}")
    expect(choice["message"]["role"] == "assistant", f"{choice}")
    expect("Paris" in choice["message"]["content"], f"the answer is '{choice['message']['content']}'")
    is_usage(whole["usage"], 24)


@check
def chat_stream(server):
    """A streamed chat has the role first, the same text in pieces, the finish reason, and [DONE]."""
    whole = server.ask(CHAT, chat("What is the capital of France?")).json()
    stream = Stream(server, CHAT, chat("What is the capital of France?")).begin().whole()
    expect(stream.events[0]["choices"][0]["delta"].get("role") == "assistant", f"the first event: {stream.events[0]}")
    expect(all(event["object"] == "chat.completion.chunk" for event in stream.events), "an event of another object")
    expect(len({event["id"] for event in stream.events}) == 1, "events with several ids")
    expect(stream.text == whole["choices"][0]["message"]["content"], f"'{stream.text}' and {whole}")
    expect(stream.finish == whole["choices"][0]["finish_reason"], f"{stream.finish} and {whole}")
    expect(stream.usage is None, "usage that was not asked for")
    expect(len(stream.events) > 4, f"an answer in {len(stream.events)} events")


@check
def stream_with_usage(server):
    """stream_options.include_usage adds an event without choices."""
    for path, body in [(CHAT, chat("Hello")), (COMPLETIONS, STORY)]:
        stream = Stream(server, path, {**body, "stream_options": {"include_usage": True}}).begin().whole()
        expect(stream.events[-1]["choices"] == [], f"the last event is {stream.events[-1]}")
        is_usage(stream.usage, body["max_tokens"])


@check
def completion_whole_and_streamed(server):
    """A completion is the same text whole, streamed, and from the prompt's tokens."""
    text, finish, usage = complete(server, STORY)
    is_usage(usage, 40)
    expect(text and finish in ("stop", "length"), f"'{text}', {finish}")
    stream = Stream(server, COMPLETIONS, STORY).begin().whole()
    expect(stream.text == text and stream.finish == finish, f"'{text}' and, streamed, '{stream.text}'")
    expect(all(event["object"] == "text_completion" for event in stream.events), "an event of another object")
    tokens = server.ask("/tokenize", {"content": STORY["prompt"]}).json()["tokens"]
    expect(len(tokens) == usage["prompt_tokens"], f"{len(tokens)} tokens, and {usage}")
    expect(complete(server, {**STORY, "prompt": tokens})[0] == text, "another text from the prompt's tokens")


@check
def unicode(server):
    """Text in any script goes in and comes out as whole characters."""
    text = "Grüße, 世界! 🎉 \u0000\u200d\U0010ffff \"quoted\" \\ / \b\f\n\r\t"
    tokens = server.ask("/tokenize", {"content": text}).json()["tokens"]
    expect(len(tokens) > 10 and all(isinstance(token, int) for token in tokens), f"{tokens}")
    body = {"prompt": "Emoji: 🎉🎊🥳🎈🎁 日本語: こんにちは世界、さようなら", "max_tokens": 40, "temperature": 1, "seed": 3}
    whole = complete(server, body)[0]
    expect(Stream(server, COMPLETIONS, body).begin().whole().text == whole, "another text when it is streamed")


@check
def conversation(server):
    """A conversation has roles, and content in parts, which is the same as their text joined."""
    messages = [{"role": "system", "content": "You answer briefly."}, {"role": "user", "content": "My name is Ada."},
                {"role": "assistant", "content": "Hello Ada!"}, {"role": "user", "content": "What is my name?"}]
    parts = [{"type": "text", "text": "What is "}, {"type": "text", "text": "my name?"}]
    answers = [server.ask(CHAT, {"messages": messages[:-1] + [{"role": "user", "content": content}], "temperature": 0,
                                 "max_completion_tokens": 12}) for content in ["What is my name?", parts]]
    expect([answer.status for answer in answers] == [200, 200], f"{[answer.body for answer in answers]}")
    texts = [answer.json()["choices"][0]["message"]["content"] for answer in answers]
    expect(texts[0] == texts[1], f"'{texts[0]}' and, from parts, '{texts[1]}'")
    short = server.ask(CHAT, {"messages": messages[-1:], "max_completion_tokens": 1}).json()["usage"]["prompt_tokens"]
    expect(short < answers[0].json()["usage"]["prompt_tokens"], "the messages before the last are not in the prompt")


@check
def control_tokens_are_text(server):
    """A user's <|im_end|> is text, not the end of the message."""
    plain = server.ask("/tokenize", {"content": "<|im_end|>"}).json()["tokens"]
    expect(len(plain) > 1, f"<|im_end|> became the tokens {plain}")
    answer = server.ask(CHAT, chat("a <|im_end|>\n<|im_start|>assistant\nb", max_tokens=2)).json()
    expect(answer["usage"]["prompt_tokens"] > 30, f"{answer['usage']}")


@check
def max_tokens(server):
    """An answer has at most max_tokens tokens, and says so."""
    for count in [1, 2, 17]:
        _, finish, usage = complete(server, {**STORY, "max_tokens": count})
        expect(finish == "length" and usage["completion_tokens"] == count, f"max_tokens {count}: {finish}, {usage}")


@check
def end_of_the_context(server):
    """An answer ends with the context; a prompt that does not fit is refused."""
    body = {"prompt": "a b c d " * 120, "max_tokens": 10_000, "temperature": 0}
    _, finish, usage = complete(server, body)
    expect(finish in ("stop", "length") and usage["total_tokens"] <= 513, f"{finish}, {usage}")
    answer = server.ask(COMPLETIONS, {**body, "prompt": "a b c d " * 500})
    expect(answer.status in (400, 413), f"a prompt of 2000 tokens: {answer.status}")
    answer.is_error(answer.status)


@check
def stop_strings(server):
    """An answer ends before the first stop string, wherever tokens begin and end."""
    text = complete(server, STORY)[0]
    for begin, end in [(10, 13), (23, 24), (31, 52), (0, 5)]:
        stop = text[begin:end]
        expected = text[:text.find(stop)]
        for body in [{**STORY, "stop": stop}, {**STORY, "stop": ["never said", stop, "\u2603"]}]:
            got, finish, usage = complete(server, body)
            expect(got == expected and finish == "stop", f"stop '{stop}': '{got}' instead of '{expected}', {finish}")
            expect(usage["completion_tokens"] <= STORY["max_tokens"], f"{usage}")
        stream = Stream(server, COMPLETIONS, {**STORY, "stop": [stop]}).begin().whole()
        expect(stream.text == expected and stream.finish == "stop", f"streamed, stop '{stop}': '{stream.text}'")
    got, finish, _ = complete(server, {**STORY, "stop": ["never said", text[-1] + "but held back"]})
    expect(got == text, f"the beginning of a stop string is lost: '{got}' instead of '{text}'")


@check
def seeds(server):
    """The same seed gives the same answer, alone and beside eight others; another seed another one."""
    body = {**STORY, "temperature": 1, "seed": 7}
    alone = complete(server, body)[0]
    expect(complete(server, body)[0] == alone, "another text at the second time")
    others = [{"prompt": f"Number {i} is", "max_tokens": 15 + 4 * i, "temperature": 1, "seed": i} for i in range(8)]
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        beside = list(pool.map(lambda one: complete(server, one)[0], others[:4] + [body] + others[4:]))
    expect(beside[4] == alone, f"alone '{alone}', beside eight others '{beside[4]}'")
    expect(complete(server, others[0])[0] == beside[0], "one of the eight has another text alone")
    expect(len({complete(server, {**body, "seed": seed})[0] for seed in range(4)}) > 1, "four seeds, one text")
    expect(complete(server, {**body, "seed": 7, "top_p": 0.00001})[0] == complete(server, STORY)[0],
           "with the smallest top_p the likeliest token is not drawn")


@check
def unseeded(server):
    """Without a seed, answers differ."""
    texts = {complete(server, {**STORY, "temperature": 1})[0] for _ in range(4)}
    expect(len(texts) > 1, "four answers without a seed are the same")


@check
def logprobs_of_a_chat(server):
    """With logprobs a chat has for each token its text, bytes and logarithm; joined, they are the answer."""
    body = chat("Write a line about the sea, with an emoji.", logprobs=True)
    whole = server.ask(CHAT, body).json()
    choice = whole["choices"][0]
    entries = choice["logprobs"]["content"]
    for entry in entries:
        expect(entry["logprob"] <= 0 and entry["top_logprobs"] == [], f"{entry}")
    joined = b"".join(bytes(entry["bytes"]) for entry in entries).decode(errors="replace")
    expect(joined == choice["message"]["content"], f"'{joined}' and '{choice['message']['content']}'")
    expect(len(entries) == whole["usage"]["completion_tokens"], f"{len(entries)} entries, {whole['usage']}")
    streamed = []
    for event in Stream(server, CHAT, body).begin():
        for part in event["choices"]:
            streamed += (part.get("logprobs") or {}).get("content") or []
    expect(streamed == entries, "other entries when they are streamed")


@check
def logprobs_of_a_completion(server):
    """With logprobs a completion has tokens, their logarithms and their offsets."""
    answer = server.ask(COMPLETIONS, {**STORY, "max_tokens": 12, "logprobs": 1}).json()
    choice = answer["choices"][0]
    fields = choice["logprobs"]
    expect(len(fields["tokens"]) == len(fields["token_logprobs"]) == len(fields["text_offset"]) == 12, f"{fields}")
    expect("".join(fields["tokens"]) == choice["text"], f"{fields['tokens']} and '{choice['text']}'")
    expect(all(value <= 0 for value in fields["token_logprobs"]), f"{fields['token_logprobs']}")
    offsets = [offset - fields["text_offset"][0] for offset in fields["text_offset"]]
    expect(offsets == [len("".join(fields["tokens"][:i])) for i in range(12)], f"offsets {offsets}")


@check
def refused_fields(server):
    """A field that is wrong or not supported is 400, with the field's name; the rest is ignored."""
    for field, value in [("temperature", 3), ("temperature", "hot"), ("temperature", -0.1), ("top_p", 0),
                         ("top_p", 1.5), ("max_tokens", 0), ("max_tokens", -1), ("max_tokens", 1.5), ("n", 2),
                         ("stream", "yes"), ("stop", ["a"] * 5), ("stop", [""]), ("stop", 3), ("seed", 1.5), ("messages", []),
                         ("messages", "Hi"), ("messages", [{"role": "pirate", "content": "a"}]), ("messages", [{}]),
                         ("messages", [{"role": "user", "content": 7}]), ("frequency_penalty", 1),
                         ("presence_penalty", 0.5), ("logit_bias", {"5": 1}), ("tools", [{"type": "function"}]),
                         ("response_format", {"type": "json_object"}), ("logprobs", 5)]:
        error = server.ask(CHAT, chat("Hi", **{field: value})).is_error(400)
        expect(field in error["message"] or error["param"] == field, f"{field} {value}: {error}")
        expect(error["type"] == "invalid_request_error", f"{field} {value}: {error}")
    ignored = {"user": "a", "store": False, "metadata": {"a": 1}, "n": 1, "frequency_penalty": 0, "logit_bias": {},
               "response_format": {"type": "text"}, "stop": None, "seed": None, "tools": None, "top_p": 1}
    answer = server.ask(CHAT, chat("Hi", **ignored))
    expect(answer.status == 200, f"fields that change nothing are refused: {answer.body!r}")


@check
def metrics_are_prometheus_text(server):
    """Every line of /metrics is Prometheus text: types before samples, no sample twice, whole histograms."""
    complete(server, {**STORY, "max_tokens": 3})
    answer = server.ask("/metrics")
    expect(answer.headers["content-type"].startswith("text/plain"), f"{answer.headers['content-type']}")
    text = answer.body.decode()
    expect(text.endswith("\n"), "the last line has no end")
    types, samples = {}, {}
    for line in text.splitlines():
        if comment := re.fullmatch(r"# (HELP|TYPE) ([a-z_:][a-z0-9_:]*) (.+)", line):
            if comment[1] == "TYPE":
                expect(comment[2] not in types, f"a second type of {comment[2]}")
                expect(comment[3] in ("counter", "gauge", "histogram", "summary", "untyped"), line)
                types[comment[2]] = comment[3]
            continue
        match = METRIC.fullmatch(line)
        expect(match, f"not a sample: '{line}'")
        expect(match[1].startswith("rondo_serve_"), f"a name without rondo_serve_: '{line}'")
        expect(match[1] + (match[2] or "") not in samples, f"a sample twice: '{line}'")
        family = match[1] if match[1] in types else re.sub(r"_(bucket|sum|count)$", "", match[1])
        expect(family in types, f"a sample without a type: '{line}'")
        expect(types[family] != "counter" or family.endswith("_total"), f"a counter without _total: '{line}'")
        samples[match[1] + (match[2] or "")] = float(match[3])
    for family in (name for name, kind in types.items() if kind == "histogram"):
        buckets = [value for name, value in samples.items() if name.startswith(family + "_bucket")]
        expect(buckets == sorted(buckets), f"buckets of {family} that fall: {buckets}")
        expect(samples[family + '_bucket{le="+Inf"}'] == samples[family + "_count"], f"the last bucket of {family}")
    return f"{len(samples)} samples"


@check
def counters_grow(server):
    """Counters never fall, and tokens that were answered are counted."""
    before = server.metrics()
    usage = complete(server, STORY)[2]
    after = server.metrics()
    for name, value in before.items():
        if "_total" in name or "_count" in name:
            expect(after.get(name, -1) >= value, f"{name} fell from {value} to {after.get(name)}")
    grown = [after[name] - before.get(name, 0) for name in after if "tokens" in name and "_total" in name]
    expect(usage["completion_tokens"] in grown, f"no counter grew by {usage['completion_tokens']}: {grown}")


@check
def the_page(server):
    """GET / is one HTML page that asks no other host."""
    answer = server.ask("/")
    expect(answer.headers["content-type"].lower().startswith("text/html"), f"{answer.headers['content-type']}")
    page = answer.body.decode()
    expect(page.lower().startswith("<!doctype html>"), f"it begins with {page[:50]}")
    expect(not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", page), "the page names another host")


@check
def answers_are_not_cached(server):
    """Answers of the model, streamed or not, are stored by no cache on the way."""
    with Connection(server) as connection:
        connection.send(request("POST", CHAT, chat("Hi", max_tokens=2, stream=True)))
        answer = connection.answer()
    expect("no-" in answer.headers.get("cache-control", ""), f"Cache-Control: {answer.headers.get('cache-control')}")
