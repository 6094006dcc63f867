#!/usr/bin/env python3
"""Loads a server that speaks OpenAI's /v1/completions, and measures the time to the first token and between tokens.

    tests/serve/load.py --program out/release/samples/serve --model MODEL.gguf --json load.json --svg load.svg
    tests/serve/load.py --url http://127.0.0.1:8080 --requests 500 --clients 16
    tests/serve/load.py --program out/release/samples/serve --model MODEL.gguf --soak 5000 -- --sequences 8

It measures the capacity first: requests a second while --clients clients each ask again at once. Then requests come at
random (Poisson) at 25, 50, 75 and 90% of the capacity. Prompts, lengths and arrivals follow from --seed. One request in
ten is wrong: its client leaves, reads slowly, is cut in its request, or sends no JSON. Requests with the same prompt
and seed must have the same text. The first token's time counts from when the request should have come, the time between
tokens from one event of a stream to the next.

--soak asks short questions instead, and looks at the end whether nothing is lost: every request has its answer, memory
is flat, and all pages are free. Options after -- are the server's. The exit status is 1 if something was lost or
differed.
"""
import argparse
import asyncio
import contextlib
import json
import sys
import time
import urllib.request

import load_picture
from load_client import Place, closed_loop, open_loop, plans, questions
from server import Server, until

PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
MEMORY_KB_MOST = 2048  # more at the end of a soak than after its first fifth


def percentiles(values):
    """In milliseconds, by the nearest rank; null without values."""
    values = sorted(values)
    return {name: round(values[min(len(values) - 1, int(share * len(values)))] * 1e3, 2) if values else None
            for name, share in PERCENTILES.items()}


class Texts:
    """The text of each question, and how often it was another one."""

    def __init__(self):
        self.known, self.compared, self.different = {}, 0, []

    def take(self, results):
        for result in results:
            if result.outcome != "answered":
                continue
            known = self.known.setdefault(result.plan.question, result.text)
            self.compared += 1
            if known != result.text:
                self.different.append((known, result.text))


def summary(results, begin):
    """Counts and times of the results of one level."""
    end = max(result.ended for result in results)
    streams = [result for result in results if result.plan.stream and result.plan.fault != "slow"]
    outcomes = [result.outcome for result in results]
    return {"requests": len(results), "seconds": round(end - begin, 2),
            "outcomes": {name: outcomes.count(name) for name in sorted(set(outcomes))},
            "tokens_a_second": round(sum(result.tokens for result in results) / (end - begin), 1),
            "first_token_ms": percentiles([result.times[0] - result.planned for result in streams if result.times]),
            "between_tokens_ms": percentiles([after - before for result in streams
                                              for before, after in zip(result.times, result.times[1:])])}


def failures(results):
    return [result.reason for result in results if result.outcome == "failed"]


def faults(texts, lost):
    return {"compared": texts.compared, "different": len(texts.different), "examples_of_different": texts.different[:3],
            "lost": len(lost), "examples_of_lost": lost[:5]}


async def measure(arguments, place):
    """The capacity, and then each level."""
    choices = questions(arguments.seed, arguments.questions, arguments.longest_prompt, arguments.longest_answer)
    texts, lost = Texts(), []
    begin = time.monotonic()
    results = await closed_loop(place, plans(arguments.seed, arguments.requests, choices, 0), arguments.clients)
    full = summary(results, begin)
    capacity = full["outcomes"].get("answered", 0) / full["seconds"]
    texts.take(results)
    lost += failures(results)
    print(f"capacity {capacity:.2f} requests a second, {full['tokens_a_second']} tokens a second", flush=True)
    levels = []
    for share in arguments.levels:
        begin = time.monotonic()
        chosen = list(plans(arguments.seed + share, arguments.requests, choices, 0.1))
        results = await open_loop(place, chosen, capacity * share / 100, arguments.seed + share)
        texts.take(results)
        lost += failures(results)
        levels.append({"percent_of_capacity": share, "requests_a_second": round(capacity * share / 100, 3),
                       **summary(results, begin)})
        show(levels[-1])
    return {"capacity_requests_a_second": round(capacity, 3), "full": full, "levels": levels, **faults(texts, lost)}


def show(level):
    first, between = ("/".join(str(value) for value in level[name].values())
                      for name in ["first_token_ms", "between_tokens_ms"])
    counts = ", ".join(f"{count} {name}" for name, count in level["outcomes"].items())
    print(f"{level['percent_of_capacity']:3}%  {'/'.join(PERCENTILES)}: first token {first} ms, between tokens {between} "
          f"ms ({counts})", flush=True)


async def soak(arguments, place, memory):
    """Many short requests, a tenth of them wrong."""
    choices = questions(arguments.seed, 50, 20, 6)
    texts, noted = Texts(), []
    step = max(1, arguments.soak // 10)

    def note(done):
        if done % step == 0:
            noted.append(memory())
            print(f"{done} requests, {noted[-1]} kB", flush=True)

    begin = time.monotonic()
    results = await closed_loop(place, plans(arguments.seed, arguments.soak, choices, 0.1), arguments.clients, note)
    texts.take(results)
    lost = failures(results)
    grown = noted[-1] - noted[1] if memory() else 0
    return {**summary(results, begin), **faults(texts, lost), "memory_kb": noted, "grown_kb": grown}


def pages_in_use(url):
    """What a server of samples/serve says; None for another one."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("rondo_serve_pages_used "):
                return int(line.split()[1])
    return None


def verdict(arguments, figures):
    """What is wrong, as sentences."""
    found, differ = [], figures["examples_of_different"]
    if figures["lost"]:
        found.append(f"{figures['lost']} requests were lost, such as: {figures['examples_of_lost'][0]}")
    if figures["different"] and not arguments.any_text:
        found.append(f"{figures['different']} of {figures['compared']} texts differ: {differ[0]}")
    if figures.get("grown_kb", 0) > MEMORY_KB_MOST:
        found.append(f"{figures['grown_kb']} kB more memory")
    if figures["pages_in_use"]:
        found.append(f"{figures['pages_in_use']} pages are still in use")
    return found


def line(figures):
    """The summary."""
    same = f"{figures['compared']} texts compared, {figures['different']} different, {figures['lost']} lost"
    if "levels" not in figures:
        return f"{figures['requests']} requests in {figures['seconds']} s; {same}; {figures['grown_kb']} kB more memory"
    last = figures["levels"][-1]
    return (f"{figures['capacity_requests_a_second']} requests a second at most; at {last['percent_of_capacity']}% p99 "
            f"is {last['first_token_ms']['p99']} ms to the first token and {last['between_tokens_ms']['p99']} ms between "
            f"tokens; {same}")


def run(arguments, extra):
    with contextlib.ExitStack() as stack:
        server = None
        if not arguments.url:
            server = stack.enter_context(Server(arguments.program, arguments.model, *extra))
            arguments.url = f"http://127.0.0.1:{server.port}"

        def memory():  # in kB; 0 of a server that another one started
            return server.status("VmRSS") if server else 0

        url = arguments.url.rstrip("/")
        place = Place(url, arguments.key, arguments.name)
        figures = asyncio.run(soak(arguments, place, memory) if arguments.soak else measure(arguments, place))
        if pages_in_use(url) is not None:
            with contextlib.suppress(Exception):
                until(lambda: pages_in_use(url) == 0, "pages are in use", 10)
        figures["pages_in_use"] = pages_in_use(url)
        return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="of a server that runs")
    parser.add_argument("--program", help="a server to start, with --model")
    parser.add_argument("--model")
    parser.add_argument("--name", help="of the model, in requests")
    parser.add_argument("--key")
    parser.add_argument("--requests", type=int, default=200, help="of each level (200)")
    parser.add_argument("--clients", type=int, default=8, help="at a time, for the capacity (8)")
    parser.add_argument("--levels", type=lambda text: [int(part) for part in text.split(",")], default=[25, 50, 75, 90])
    parser.add_argument("--questions", type=int, default=40, help="different ones (40)")
    parser.add_argument("--longest-prompt", type=int, default=150, help="words (150)")
    parser.add_argument("--longest-answer", type=int, default=64, help="tokens (64)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--soak", type=int, default=0, metavar="N", help="N short requests instead of levels")
    parser.add_argument("--any-text", action="store_true", help="of a server that does not promise the same text")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--svg", metavar="FILE")
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    arguments = parser.parse_args(given[:cut])
    if not arguments.url and not (arguments.program and arguments.model):
        parser.error("--url, or --program and --model")
    figures = run(arguments, given[cut + 1:])
    figures["arguments"] = {name: value for name, value in vars(arguments).items() if name != "key"}
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
    if arguments.svg and "levels" in figures:
        with open(arguments.svg, "w", encoding="utf-8") as file:
            file.write(load_picture.draw(figures))
    print(line(figures))
    wrong = verdict(arguments, figures)
    for sentence in wrong:
        print(f"FAILED  {sentence}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
