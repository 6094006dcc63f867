#!/usr/bin/env python3
"""Makes tokenizer_vectors.txt and the token ids in prompts.txt and text.txt with Hugging Face's `tokenizers` (pip3 install
tokenizers; run by hand, with 0.22), from the vocabulary in the GGUF file and the two steps of SmolLM2's tokenizer.json:

    python3 tests/model/make_vectors.py MODEL.gguf

A vector is a line: 'text' or 'special' (whether <|im_end|> is a token), the text with bytes beyond printable ASCII as \\xNN,
and the ids. Bytes that are no UTF-8 are no text for that library: a run of them is a piece that its model merges alone.
"""
import os
import random
import sys
import unicodedata

from reference import FOLDER, Gguf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
PROMPTS = [
    "Why is the sky blue?",
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "Explain what a hash table is to a child.",
    "List three facts about the number 42.",
]
TEXTS = [
    "",
    " ",
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog.",
    "I'm sure they're here; we've seen it, she'll say it's what he'd do. IT'S 'S 'RE can't",
    "x = 3.14159 + 2^10 - 1000000 // 7",
    "  two  spaces   three\t\ttabs \t mixed\n\n\nnewlines\r\n\r\nand returns   \n   ",
    "trailing spaces   ",
    "   1   2",
    "a\n",
    "\n\n \n",
    "déjà vu, naïve, Ångström, Übermut, ñandú, œuvre",
    "de\u0301ja\u0300 vu with combining marks, Z\u0351\u036b\u0343algo",
    "日本語のテキストと漢字、ひらがな、カタカナ。",
    "中文没有空格。 한국어 문장입니다.",
    "Привет, мир! Γειά σου Κόσμε. שלום עולם مرحبا بالعالم हिन्दी ไทย",
    "🎉🎊 👩‍👩‍👧‍👦 🇫🇷 👍🏽 ☃️ ✓",
    "½ ² ³ ① Ⅷ ٣ ๓ 42nd 1st",
    "no\u00a0break\u2003em\u3000wide\u2028line\u2029paragraph\u0085next\u180emongolian\u200bzero\ufeffbom",
    "\x00\x01\x04\x06\x1f\x7f",
    "for (int i = 0; i < n; i++) {\n    sum += a[i] * b[i];  // dot\n}\n",
    "https://example.com/a?b=c&d=%20e#f  user@example.org",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "antidisestablishmentarianism Donaudampfschifffahrtsgesellschaft",
    "......!!!!!????? --- === ***",
    "<|im_start|>system\n<|im_end|> <|im_<|im_end|>|>",
    "A<|endoftext|>B<repo_name>C",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠀀𠀁 \U0010fffd \ue000 \uffff \u0378",
]
INVALID = [b"\xff", b"abc\xffdef", b"\xc3", b"caf\xc3\xa9 \xc3\x28", b"\xe2\x82", b"\xed\xa0\x80 \xf0\x9f\x98", b"\x80\x80\x80 1"]


def tokenizer(vocabulary, merges, specials):
    made = Tokenizer(models.BPE({text: i for i, text in enumerate(vocabulary)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(specials)
    return made


def characters_of_bytes():
    """GPT-2's bytes_to_unicode."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


CHARACTERS = characters_of_bytes()


def ids_of_bytes(plain, data):
    """UTF-8 as text, runs of other bytes by the model alone."""
    ids, text, invalid = [], "", b""
    for character in data.decode("utf-8", "surrogateescape") + "\0end":
        byte = ord(character) - 0xDC00 if 0xDC80 <= ord(character) < 0xDD00 else None
        if byte is None and invalid:
            ids += [token.id for token in plain.model.tokenize("".join(CHARACTERS[b] for b in invalid))]
            invalid = b""
        if byte is not None and text:
            ids, text = ids + plain.encode(text).ids, ""
        if byte is None:
            text += character
        else:
            invalid += bytes([byte])
    return ids + plain.encode(text[:-4]).ids


def shown(data):
    plain = lambda byte: 32 <= byte < 127 and byte != 92
    return "".join(chr(byte) if plain(byte) else f"\\x{byte:02x}" for byte in data)


def random_texts():
    """Words, spaces and characters of many scripts, in any order."""
    generator = random.Random(20261122)
    words = ["the", " of", "tion", "'s", "'ll", " ", "  ", "\n", "\t", "7", "99", "é", "e\u0301", "ß", "字", "🎉", "!", "...", "_"]
    scripts = [range(0x20, 0x7F), range(0xA0, 0x250), range(0x370, 0x530), range(0x900, 0x980), range(0x3040, 0x3100),
               range(0x4E00, 0x9FFF), range(0x1F300, 0x1F650), range(0x2000, 0x2070)]
    for _ in range(60):
        text = ""
        for _ in range(generator.randrange(1, 20)):
            if generator.random() < 0.6:
                text += generator.choice(words)
            else:
                text += chr(generator.choice(generator.choice(scripts)))
        yield "".join(c for c in text if unicodedata.category(c) != "Cn")  # what Unicode adds later may become a letter


def main():
    keys = Gguf(sys.argv[1]).keys
    vocabulary, kinds = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in keys["tokenizer.ggml.merges"]]
    specials = [text for text, kind in zip(vocabulary, kinds) if kind == 3]
    plain, special = tokenizer(vocabulary, merges, []), tokenizer(vocabulary, merges, specials)

    with open(os.path.join(FOLDER, "tokenizer_vectors.txt"), "w", encoding="ascii") as file:
        print("# Made by tests/model/make_vectors.py: kind, text and token ids, with tabs between them.", file=file)
        for text in [*TEXTS, *random_texts()]:
            for kind, made in (("text", plain), ("special", special)):
                ids = made.encode(text).ids
                print(kind, shown(text.encode()), " ".join(map(str, ids)), sep="\t", file=file)
        for data in INVALID:
            print("text", shown(data), " ".join(map(str, ids_of_bytes(plain, data))), sep="\t", file=file)

    with open(os.path.join(FOLDER, "prompts.txt"), "w", encoding="ascii") as file:
        print("# Made by tests/model/make_vectors.py: a prompt, and the tokens that the chat template makes of it.", file=file)
        for prompt in PROMPTS:
            turns = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
            print(f"prompt {prompt}\ntokens", *special.encode(turns).ids, file=file)

    with open(os.path.join(FOLDER, "text.txt"), encoding="utf-8") as file:
        text = "".join(line for line in file if not line.startswith(("#", "tokens ")))
    with open(os.path.join(FOLDER, "text.txt"), "w", encoding="utf-8") as file:
        print("# Charles Darwin, On the Origin of Species, 1859, chapter IV; the tokens are made by tests/model/make_vectors.py.", file=file)
        file.write(text)
        print("tokens", *plain.encode(text).ids, file=file)


main()
