#!/usr/bin/env python3
"""What SmolLM2-135M-Instruct answers, computed in fp32 with numpy from the GGUF file alone: an oracle that shares no code
with Rondo. It reads prompts.txt and text.txt beside it (text and token ids) and writes, for every prompt, 64 steps of
greedy decoding with the two largest logits of each and those of six fixed columns, then the perplexity of the text:

    python3 tests/model/reference.py MODEL.gguf > tests/model/expected.txt
    python3 tests/model/reference.py MODEL.gguf --check 8    # computes the first 8 steps and the perplexity, and compares

The file has weights of 4 bits with a factor and a minimum (Q4_1); they count exactly as fp32 here, which is more than a
program that rounds them to bf16 has.
"""
import os
import struct
import sys

import numpy as np

FOLDER = os.path.dirname(os.path.abspath(__file__))
STEPS = 64
COLUMNS = [8192 * k + 17 * k + 5 for k in range(6)]  # spread over the vocabulary of 49152
LOGIT_TOLERANCE = 2e-3  # fp32 sums in another order


# ---- GGUF: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md --------------------------------------------------

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class Gguf:
    def __init__(self, path):
        self.data = np.memmap(path, np.uint8, "r")
        self.bytes, self.at = memoryview(self.data), 0
        if bytes(self.bytes[:4]) != b"GGUF":
            sys.exit(f"{path}: not a GGUF file")
        self.at = 4
        _, tensors, keys = self.number("I"), self.number("Q"), self.number("Q")
        self.keys = {}
        for _ in range(keys):
            key = self.text()
            self.keys[key] = self.value(self.number("I"))
        descriptions = [self.describe() for _ in range(tensors)]
        alignment = self.keys.get("general.alignment", 32)
        begin = (self.at + alignment - 1) // alignment * alignment
        self.places = {name: (shape, kind, begin + offset) for name, shape, kind, offset in descriptions}

    def number(self, code):
        (value,) = struct.unpack_from("<" + code, self.bytes, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        length = self.number("Q")
        self.at += length
        return bytes(self.bytes[self.at - length : self.at]).decode("utf-8")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            kind, count = self.number("I"), self.number("Q")
            return [self.value(kind) for _ in range(count)]
        return self.number(SCALARS[kind])

    def describe(self):
        name, rank = self.text(), self.number("I")
        shape = [self.number("Q") for _ in range(rank)]
        return name, shape[::-1], self.number("I"), self.number("Q")

    def tensor(self, name):
        """As fp32, rows last-dimension-contiguous."""
        shape, kind, offset = self.places[name]
        count = int(np.prod(shape))
        if kind == 0:
            return self.data[offset : offset + 4 * count].view(np.float32).reshape(shape)
        size = {3: 20, 8: 34}[kind]
        blocks = self.data[offset : offset + count // 32 * size].reshape(-1, size)
        factor = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        if kind == 8:
            return (factor * blocks[:, 2:].view(np.int8).astype(np.float32)).reshape(shape)
        least = blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
        codes = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1).astype(np.float32)
        return (factor * codes + least).reshape(shape)


# ---- The model ---------------------------------------------------------------------------------------------------------


def normalised(x, weight, epsilon):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def product(x, weight):
    """x W', by a product with a vector where there is one: BLAS is several times as fast then."""
    return (weight @ x[0])[None] if len(x) == 1 else x @ weight.T


class Model:
    def __init__(self, path):
        file = Gguf(path)
        self.weights = {name: file.tensor(name) for name in file.places}
        self.layers = file.keys["llama.block_count"]
        self.query_heads = file.keys["llama.attention.head_count"]
        self.kv_heads = file.keys["llama.attention.head_count_kv"]
        self.head = file.keys["llama.embedding_length"] // self.query_heads
        self.epsilon = np.float32(file.keys["llama.attention.layer_norm_rms_epsilon"])
        base = file.keys["llama.rope.freq_base"]
        self.frequencies = base ** (-np.arange(0, self.head, 2, dtype=np.float64) / self.head)
        self.end = file.keys["tokenizer.ggml.eos_token_id"]
        self.begin()

    def begin(self):
        """Forgets all tokens."""
        shape = (0, self.kv_heads, self.head)
        self.cache = [[np.zeros(shape, np.float32), np.zeros(shape, np.float32)] for _ in range(self.layers)]

    def rotated(self, x, positions):
        """Neighbours 2i and 2i + 1 are a pair: the rows of q and k lie so in a GGUF file."""
        angle = positions[:, None, None] * self.frequencies
        cosine, sine = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
        out = np.empty_like(x)
        out[..., 0::2] = x[..., 0::2] * cosine - x[..., 1::2] * sine
        out[..., 1::2] = x[..., 0::2] * sine + x[..., 1::2] * cosine
        return out

    def attention(self, layer, h, positions):
        weight = lambda name: self.weights[f"blk.{layer}.attn_{name}.weight"]
        count = len(h)
        q = self.rotated(product(h, weight("q")).reshape(count, self.query_heads, self.head), positions)
        k = self.rotated(product(h, weight("k")).reshape(count, self.kv_heads, self.head), positions)
        v = product(h, weight("v")).reshape(count, self.kv_heads, self.head)
        cache = self.cache[layer]
        cache[0], cache[1] = np.concatenate([cache[0], k]), np.concatenate([cache[1], v])
        seen = np.arange(len(cache[0]))[None, :] <= positions[:, None]
        out = np.empty_like(q)
        for head in range(self.query_heads):
            group = head * self.kv_heads // self.query_heads
            score = q[:, head] @ cache[0][:, group].T / np.float32(np.sqrt(self.head))
            score = np.where(seen, score, np.float32(-np.inf))
            weights = np.exp(score - score.max(-1, keepdims=True))
            out[:, head] = weights / weights.sum(-1, keepdims=True) @ cache[1][:, group]
        return product(out.reshape(count, -1), weight("output"))

    def logits(self, tokens):
        """Of every token's successor; the tokens follow those of earlier calls."""
        positions = len(self.cache[0][0]) + np.arange(len(tokens))
        x = self.weights["token_embd.weight"][tokens]
        for layer in range(self.layers):
            weight = lambda name: self.weights[f"blk.{layer}.{name}.weight"]
            x = x + self.attention(layer, normalised(x, weight("attn_norm"), self.epsilon), positions)
            h = normalised(x, weight("ffn_norm"), self.epsilon)
            gate = product(h, weight("ffn_gate"))
            x = x + product(gate / (1 + np.exp(-gate)) * product(h, weight("ffn_up")), weight("ffn_down"))
        x = normalised(x, self.weights["output_norm.weight"], self.epsilon)
        return product(x, self.weights["token_embd.weight"])


def greedy(model, prompt, step_count):
    """(best, its logit, second, its logit, those of COLUMNS) of each step; the end of the answer is a token like any
    other."""
    model.begin()
    tokens, steps = prompt, []
    for _ in range(step_count):
        logits = model.logits(tokens)[-1]
        second, best = np.argsort(logits, kind="stable")[-2:]
        steps.append((int(best), float(logits[best]), int(second), float(logits[second]), *map(float, logits[COLUMNS])))
        tokens = [int(best)]
    return steps


def perplexity(model, tokens):
    model.begin()
    logits = model.logits(tokens[:-1]).astype(np.float64)
    largest = logits.max(-1)
    log_sum = largest + np.log(np.exp(logits - largest[:, None]).sum(-1))
    return float(np.exp((log_sum - logits[np.arange(len(tokens) - 1), tokens[1:]]).mean()))


# ---- Files -------------------------------------------------------------------------------------------------------------


def token_lists(name):
    """Lines 'tokens 1 2 3' of a file, whose other lines are for people."""
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return [[int(word) for word in line.split()[1:]] for line in file if line.startswith("tokens ")]


def compute(path, step_count):
    model, lines = Model(path), [("columns", *COLUMNS)]
    for number, prompt in enumerate(token_lists("prompts.txt")):
        lines += [("step", number, *step) for step in greedy(model, prompt, step_count)]
    (text,) = token_lists("text.txt")
    lines.append(("perplexity", perplexity(model, text)))
    return lines


def shown(line):
    return " ".join(f"{word:.4f}" if isinstance(word, float) else str(word) for word in line)


def differs(computed, expected):
    """Where tokens are not the same, or numbers further apart than sums in another order make them."""
    if len(computed) != len(expected):
        return "another number of words"
    for word, text in zip(computed, expected):
        if isinstance(word, float):
            if not abs(word - float(text)) <= LOGIT_TOLERANCE * max(1, abs(word)):
                return f"{word:.4f} is not {text}"
        elif str(word) != text:
            return f"{word} is not {text}"
    return None


def read_expected(step_count):
    """The lines that compute gives for so many steps."""
    with open(os.path.join(FOLDER, "expected.txt"), encoding="utf-8") as file:
        columns, *steps, text = [line.split() for line in file if not line.startswith("#")]
    return [columns, *(step for i, step in enumerate(steps) if i % STEPS < step_count), text]


def check(path, step_count):
    lines, expected = compute(path, step_count), read_expected(step_count)
    wrong = [f"line {i + 1}: {why}" for i, pair in enumerate(zip(lines, expected)) if (why := differs(*pair))]
    if len(lines) != len(expected):
        wrong.append(f"{len(lines)} lines were computed, expected.txt has {len(expected)} of them")
    for line in wrong[:10]:
        print(line)
    print(f"{len(lines)} lines computed, {len(wrong)} differ from expected.txt")
    return not wrong


def main():
    if len(sys.argv) == 4 and sys.argv[2] == "--check":
        sys.exit(not check(sys.argv[1], int(sys.argv[3])))
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("# Made by tests/model/reference.py: 'step PROMPT BEST LOGIT SECOND LOGIT LOGITS-OF-THE-COLUMNS' and")
    print("# 'perplexity OF-THE-TEXT'.")
    for line in compute(sys.argv[1], STEPS):
        print(shown(line))


if __name__ == "__main__":
    main()
