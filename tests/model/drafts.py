"""drafts.py CHAT [OPTION...] - asks the chat sample about the texts of repeating.txt, without drafts and with them, and
compares answers and tokens a second:

    tests/model/drafts.py out/release/samples/chat --backend cuda

Options are the sample's, for both; --draft N is for the answers with drafts alone.
"""
import pathlib
import re
import subprocess
import sys


def ask(chat, options, text):
    """The answer, its tokens after the first, how many a second, and how many came with drafts in how many replays."""
    command = [chat, *options, "--tokens", "400", "--prompt", text]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(ran.stderr)
    figures = re.search(r"answer +(\d+) tokens after the first, ([0-9.]+) in a second", ran.stderr)
    drafts = re.search(r"drafts +(\d+) of the tokens in (\d+) replays", ran.stderr)
    return ran.stdout, int(figures[1]), float(figures[2]), f"{drafts[1]} in {drafts[2]}" if drafts else "none"


def main():
    chat, *options = sys.argv[1:]
    drafts = []
    if "--draft" in options:
        at = options.index("--draft")
        drafts = options[at : at + 2]
        del options[at : at + 2]
    texts = pathlib.Path(__file__).with_name("repeating.txt").read_text().split("----\n")
    times = [0.0, 0.0]
    tokens = 0
    others = 0
    print("tokens  a second  with drafts  ratio  the same  replays with drafts")
    for text in texts:
        answer, count, plain, _ = ask(chat, options + ["--draft", "0"], text)
        other, _, drafted, replays = ask(chat, options + drafts, text)
        others += answer != other
        tokens += count
        times[0] += count / plain
        times[1] += count / drafted
        print(f"{count:6} {plain:9.1f} {drafted:12.1f} {drafted / plain:6.2f}  {'yes' if answer == other else 'NO':8}  {replays}")
    print(f"{tokens:6} {tokens / times[0]:9.1f} {tokens / times[1]:12.1f} {times[0] / times[1]:6.2f}  {others} others")
    return others > 0


if __name__ == "__main__":
    sys.exit(main())
