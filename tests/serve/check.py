#!/usr/bin/env python3
"""Checks a server of samples/serve, which it starts itself: HTTP by the book (http_checks.py), the API (api_checks.py),
clients that are slow, gone or many (service_checks.py), start and end (start_checks.py).

    python3 tests/serve/check.py out/release/samples/serve MODEL.gguf [--filter 'http/*'] [--slow] [-- --backend host]

Options after -- are the server's; without any it runs on the host, since the checks need answers that last. A line for
each check. The exit status is 1 if one failed, 2 for a wrong argument, and 77 without a model."""
import argparse
import fnmatch
import os
import resource
import sys
import time
import traceback

import api_checks
import http_checks
import service_checks
import start_checks
from server import Server, Wrong

SKIPPED = 77
GROUPS = [http_checks, api_checks, service_checks, start_checks]


def raise_descriptors(wanted):
    """As many connections as asked for, as far as the system allows: each has one descriptor here and one there."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = hard if hard != resource.RLIM_INFINITY else max(soft, wanted + 500)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(wanted, soft - 500)


def run_one(name, check, argument):
    begin = time.monotonic()
    try:
        note = check(argument)
        result, text = True, f"passed  {time.monotonic() - begin:6.1f} s" + (f"  {note}" if note else "")
    except Wrong as wrong:
        result, text = False, f"FAILED  {wrong}"
    except Exception as error:  # such as a connection that ends: a check that breaks off has failed
        place = traceback.extract_tb(error.__traceback__)[-1]
        result, text = False, f"FAILED  {type(error).__name__}: {error} (line {place.lineno} of {place.name})"
    print(f"{name:44} {text}", flush=True)
    return result


def run_alone(arguments, extra, chosen):
    """Checks that start servers of their own."""
    def start(*options, **how):
        return Server(arguments.program, arguments.model, *extra, *options, **how)

    start.program, start.model = arguments.program, arguments.model
    return [run_one(name, check, start) for name, check in chosen]


def run_together(arguments, extra, group, area, chosen):
    """Checks of one server, which has to live through all of them."""
    results = []
    try:
        with Server(arguments.program, arguments.model, *group.OPTIONS, *extra) as server:
            server.connections = arguments.connections
            for name, check in chosen:
                results.append(run_one(name, check, server))
                if server.process.poll() is not None:
                    raise Wrong(f"the server ended with status {server.process.poll()}: {server.said()[-2000:]}")
            results.append(run_one(f"{area}/stops_with_status_0", stops, server))
    except Wrong as wrong:
        print(f"{area:44} FAILED  {wrong}")
        results.append(False)
    return results


def stops(server):
    status = server.end()
    if status != 0:
        raise Wrong(f"after SIGTERM the exit status is {status}: {server.said()[-2000:]}")


def run(arguments, extra):
    results = []
    for group in GROUPS:
        area = group.__name__.removesuffix("_checks")
        chosen = [(f"{area}/{check.__name__}", check) for check in group.CHECKS
                  if fnmatch.fnmatch(f"{area}/{check.__name__}", arguments.filter)
                  and (arguments.slow or check not in getattr(group, "SLOW", []))]
        if chosen and group.OPTIONS is None:
            results += run_alone(arguments, extra, chosen)
        elif chosen:
            results += run_together(arguments, extra, group, area, chosen)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--filter", default="*", help="names of checks, as a shell's pattern")
    parser.add_argument("--connections", type=int, default=2000, help="how many at once (2000)")
    parser.add_argument("--slow", action="store_true", help="also checks that take minutes")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    arguments = parser.parse_args(given[:cut])
    if arguments.list:
        for group in GROUPS:
            for check in group.CHECKS:
                print(f"{group.__name__.removesuffix('_checks')}/{check.__name__}: {check.__doc__}")
        return 0
    if not os.path.exists(arguments.model):
        print(f"there is no model {arguments.model}: ./bootstrap model fetches one")
        return SKIPPED
    arguments.connections = raise_descriptors(arguments.connections)
    results = run(arguments, given[cut + 1:] or ["--backend", "host"])
    if not results:
        parser.error(f"no check is named {arguments.filter}")
    print(f"{sum(results)} checks passed, {results.count(False)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
