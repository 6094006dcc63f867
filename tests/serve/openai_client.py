#!/usr/bin/env python3
"""A server of samples/serve and the `openai` package from PyPI, which many programs use: answers, streams, and errors
as the package's own exceptions.

    python3 tests/serve/openai_client.py out/release/samples/serve MODEL.gguf

It installs the package into out/openai. The exit status is 1 if something is wrong, and 77 without a model, or where
PyPI is out of reach."""
import concurrent.futures
import importlib.util
import os
import subprocess
import sys
import tempfile

from server import Server, Wrong, expect, until

SKIPPED = 77
FOLDER = os.path.join(os.path.dirname(__file__), "../../out/openai")
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
LONG = {"prompt": "1 2 3 4 5 6 7 8 9 10 11 12", "max_tokens": 400, "temperature": 0}


def install():
    """Makes the package importable; False where it is not to be had."""
    sys.path.insert(0, FOLDER)
    if importlib.util.find_spec("openai"):
        return True
    pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else ["pip3"]
    done = subprocess.run([*pip, "install", "-q", "--only-binary", ":all:", "--target", FOLDER, "openai"],
                          capture_output=True, text=True)
    if done.returncode:
        print(done.stdout + done.stderr)
    importlib.invalidate_caches()
    return done.returncode == 0


def client_of(server, key="none"):
    import openai
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key=key, max_retries=0, timeout=120)


def models(client):
    names = [model.id for model in client.models.list()]
    expect(len(names) == 1, f"{names}")
    return names[0]


def chats(client, model):
    whole = client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=24)
    expect("Paris" in whole.choices[0].message.content, f"{whole}")
    expect(whole.choices[0].finish_reason in ("stop", "length"), f"{whole}")
    expect(whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens, f"{whole.usage}")
    expect(whole.usage.prompt_tokens_details.cached_tokens >= 0, f"{whole.usage}")
    text, usage = "", None
    for event in client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=24,
                                                stream=True, stream_options={"include_usage": True}):
        text += (event.choices[0].delta.content or "") if event.choices else ""
        usage = event.usage or usage
    expect(text == whole.choices[0].message.content, f"streamed '{text}'")
    expect(usage.completion_tokens == whole.usage.completion_tokens, f"{usage}")
    return text


def chats_with_helpers(client, model):
    """The package's own reader of streams joins the events again."""
    with client.chat.completions.stream(model=model, messages=QUESTION, temperature=0, max_tokens=24) as stream:
        final = stream.get_final_completion()
    expect("Paris" in final.choices[0].message.content, f"{final}")
    raw = client.chat.completions.with_raw_response.create(model=model, messages=QUESTION, max_tokens=1)
    expect(raw.parse().usage.completion_tokens == 1, f"{raw.headers}")


def logprobs(client, model):
    answer = client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=5, logprobs=True)
    entries = answer.choices[0].logprobs.content
    expect(len(entries) == answer.usage.completion_tokens and entries[0].logprob <= 0, f"{entries}")


def completions(client, model):
    body = {"model": model, "prompt": "The sky is", "max_tokens": 8, "temperature": 1, "seed": 4}
    whole = client.completions.create(**body)
    streamed = "".join(event.choices[0].text for event in client.completions.create(**body, stream=True))
    expect(streamed == whole.choices[0].text, f"'{whole.choices[0].text}' and, streamed, '{streamed}'")
    stop = streamed[3:6]
    cut = client.completions.create(**body, stop=stop)
    expect(cut.choices[0].text == streamed[:streamed.find(stop)], f"stop '{stop}': {cut}")


def raises(kind, function, status):
    try:
        function()
    except kind as error:
        expect(error.status_code == status and error.message, f"{error!r}")
        return error
    raise Wrong(f"no {kind.__name__}")


def errors(client, model):
    import openai
    chat = client.chat.completions.create
    error = raises(openai.NotFoundError, lambda: chat(model="gpt-4", messages=QUESTION), 404)
    expect("gpt-4" in str(error), f"{error}")
    error = raises(openai.BadRequestError, lambda: chat(model=model, messages=QUESTION, temperature=9), 400)
    expect(error.param == "temperature" and error.type == "invalid_request_error", f"{error.body}")
    raises(openai.BadRequestError, lambda: chat(model=model, messages=QUESTION, n=3), 400)
    raises(openai.BadRequestError, lambda: chat(model=model, messages=[]), 400)
    raises(openai.NotFoundError, lambda: client.embeddings.create(model=model, input="a"), 404)


def full_queue(client, server, model):
    """A full queue is RateLimitError; the package tries again by itself, if it may, and then has its answer."""
    import openai
    until(lambda: server.metric("active_requests") == 0, "an earlier request goes on")
    streams = [client.completions.create(model=model, stream=True, **LONG) for _ in range(3)]  # one runs, two wait
    next(iter(streams[0]))
    until(lambda: server.metric("waiting_requests") == 2, "two requests do not wait")
    raises(openai.RateLimitError, lambda: client.completions.create(model=model, prompt="a", max_tokens=1), 429)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        patient = client.with_options(max_retries=8)
        later = pool.submit(lambda: patient.completions.create(model=model, prompt="a", max_tokens=1))
        for stream in streams:
            stream.close()
        expect(later.result().usage.completion_tokens <= 1, "the answer after Retry-After")
    until(lambda: server.metric("pages_used") == 0, "pages stay in use")


def keys(program, model_file):
    import openai
    with tempfile.NamedTemporaryFile("w") as file:
        file.write("sk-right\n")
        file.flush()
        with Server(program, model_file, "--context", 256, "--sequences", 1, "--api-key-file", file.name) as server:
            expect(models(client_of(server, "sk-right")), "the right key")
            raises(openai.AuthenticationError, lambda: models(client_of(server, "sk-wrong")), 401)


def check(program, model_file):
    with Server(program, model_file, "--context", 512, "--sequences", 1, "--queue", 2) as server:
        client = client_of(server)
        model = models(client)
        print(f"the model {model} says: {chats(client, model)}")
        chats_with_helpers(client, model)
        logprobs(client, model)
        completions(client, model)
        errors(client, model)
        full_queue(client, server, model)
        client.close()
    keys(program, model_file)


def main():
    if len(sys.argv) != 3:
        print(__doc__)
        return 2
    if not os.path.exists(sys.argv[2]):
        print(f"there is no model {sys.argv[2]}")
        return SKIPPED
    if not install():
        print("the package openai cannot be installed: PyPI is out of reach")
        return SKIPPED
    import openai
    try:
        check(sys.argv[1], sys.argv[2])
    except Wrong as wrong:
        print(f"FAILED  {wrong}")
        return 1
    print(f"openai {openai.__version__} works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
