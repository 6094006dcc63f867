"""The language models of rivals.py: times a token or a prompt of a Llama in PyTorch, with PyTorch's operations and with
torch.compile, each captured in a CUDA graph. Sizes and method are those of `rondo bench llama` (bench_llama.c): the time
from the replay until the host has read the token. The graph feeds tokens back; positions stay the same.

PyTorch gets every advantage: q, k and v are one product, gate and up another; the fastest of its attention kernels counts;
caches end with the context, so that nothing is masked; all sequences are at the same position; the graph copies the tokens
to pinned memory. In a prompt there is no choice by rows. In a prompt, and for more than 16 sequences, torch.compile keeps
cuBLAS's products, since max-autotune takes minutes for each size. The logits are compared with those of the same step in
f32, within the precision of bf16."""
import copy
import ctypes
import math
import sys
import time
from typing import NamedTuple

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

BF16 = torch.bfloat16
EPSILON = 1e-5
SEQUENCES, CONTEXTS = [1, 4, 16], [128, 512, 4096]
MOST_TUNED = 16  # sequences, up to which torch.compile looks for products of its own
WARM_STEPS, WARM_REPLAYS = 3, 100
# Relative to the norm of the logits in f32. The roundings of bf16 in all layers cause 0.03 to 0.05; in a prompt keys and
# values have them too.
LOGITS_ERROR, PROMPT_LOGITS_ERROR = 0.1, 0.2


class Shape(NamedTuple):
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: int
    rope_base: float


# The sizes of ready_graphs.c.
MODELS = {"smollm2": Shape(30, 576, 9, 3, 1536, 49152, 1e5), "llama": Shape(16, 2048, 32, 8, 8192, 128256, 1e4)}

# Name, the kernels that PyTorch may choose from, and whether the query heads of a KV head are rows of one query.
ATTENTION = [("FlashAttention-2", SDPBackend.FLASH_ATTENTION, False),
             ("FlashAttention-2 by rows", SDPBackend.FLASH_ATTENTION, True),
             ("cuDNN", SDPBackend.CUDNN_ATTENTION, False), ("cuDNN by rows", SDPBackend.CUDNN_ATTENTION, True),
             ("products and softmax", SDPBackend.MATH, True)]


class Llama:
    """Random weights, KV caches for a number of sequences and tokens, and the last token of each sequence."""
    logits_error, attention, compile_mode = LOGITS_ERROR, ATTENTION, "max-autotune-no-cudagraphs"

    def __init__(self, shape, sequences, context, device="cuda"):
        def random(*size):
            return torch.randn(size, device=device, dtype=BF16)

        def weights(rows, columns):
            return random(rows, columns).div_(math.sqrt(columns))

        def norm():
            return 1 + random(shape.hidden) / 8

        self.shape, self.dimension, self.by_rows = shape, shape.hidden // shape.heads, False
        if sequences > MOST_TUNED:
            self.compile_mode = "default"
        heads, cache = shape.heads + 2 * shape.kv_heads, (sequences, shape.kv_heads, context, self.dimension)
        self.layers = [dict(attention_norm=norm(), qkv=weights(heads * self.dimension, shape.hidden),
                            output=weights(shape.hidden, shape.heads * self.dimension), k=random(*cache),
                            v=random(*cache), feed_forward_norm=norm(),
                            gate_up=weights(2 * shape.feed_forward, shape.hidden),
                            down=weights(shape.hidden, shape.feed_forward)) for _ in range(shape.layers)]
        self.ends = dict(embedding=weights(shape.vocabulary, shape.hidden), norm=norm(),
                         turns=self.turns(context, device))
        self.token = torch.zeros(sequences, dtype=torch.int64, device=device)
        self.position = torch.full((1,), context - 1, device=device)

    def turns(self, context, device):
        """Of each position what rotary embedding multiplies a head by, and what its other half."""
        half = self.dimension // 2
        frequencies = self.shape.rope_base ** (-torch.arange(half, device=device, dtype=torch.float64) / half)
        angles = torch.arange(context, device=device)[:, None] * frequencies
        cosines, sines = angles.cos(), angles.sin()
        return torch.stack([torch.cat([cosines, cosines], 1), torch.cat([-sines, sines], 1)]).to(BF16)

    def in_f32(self):
        """The same model and state, with all numbers in f32."""
        wide = copy.copy(self)
        wide.layers = [{name: tensor.float() for name, tensor in layer.items()} for layer in self.layers]
        wide.ends = {name: tensor.float() for name, tensor in self.ends.items()}
        wide.token = self.token.clone()
        return wide

    def ids(self):
        return self.token

    def turns_of_rows(self):
        return self.ends["turns"].index_select(1, self.position)

    def append(self, layer, k, v):
        layer["k"].index_copy_(2, self.position, k[:, :, None])
        layer["v"].index_copy_(2, self.position, v[:, :, None])

    def attend(self, q, k, v):
        if self.by_rows:
            attended = functional.scaled_dot_product_attention(q.unflatten(1, (self.shape.kv_heads, -1)), k, v)
        else:
            attended = functional.scaled_dot_product_attention(q[:, :, None], k, v, enable_gqa=True)
        return attended.reshape(len(q), -1)

    def rows_with_logits(self, x):
        return x

    def step(self):
        """The logits of the next tokens, which take the tokens' place."""
        heads, kv_heads, hidden = self.shape.heads, self.shape.kv_heads, (self.shape.hidden,)
        own, other = self.turns_of_rows()
        x = functional.embedding(self.ids(), self.ends["embedding"])
        for layer in self.layers:
            normed = functional.rms_norm(x, hidden, layer["attention_norm"], EPSILON)
            qkv = functional.linear(normed, layer["qkv"]).unflatten(1, (-1, self.dimension))
            qk, v = qkv.split([heads + kv_heads, kv_heads], 1)
            qk = torch.addcmul(qk * own, qk.roll(self.dimension // 2, -1), other)
            q, k = qk.split([heads, kv_heads], 1)
            self.append(layer, k, v)
            x = x + functional.linear(self.attend(q, layer["k"], layer["v"]), layer["output"])
            normed = functional.rms_norm(x, hidden, layer["feed_forward_norm"], EPSILON)
            gate, up = functional.linear(normed, layer["gate_up"]).chunk(2, 1)
            x = x + functional.linear(functional.silu(gate) * up, layer["down"])
        x = self.rows_with_logits(x)
        logits = functional.linear(functional.rms_norm(x, hidden, self.ends["norm"], EPSILON), self.ends["embedding"])
        self.token.copy_(logits.argmax(1))
        return logits


class Prompt(Llama):
    """The same with a prompt that fills the caches of one sequence. Its last row has logits."""
    logits_error, attention, compile_mode = PROMPT_LOGITS_ERROR, [each for each in ATTENTION[:-1] if not each[2]], "default"

    def __init__(self, shape, tokens):
        super().__init__(shape, 1, tokens)
        self.prompt = torch.arange(tokens, device="cuda") * 7919 % shape.vocabulary

    def ids(self):
        return self.prompt

    def turns_of_rows(self):
        return self.ends["turns"][:, :, None]

    def append(self, layer, k, v):
        layer["k"].copy_(k.transpose(0, 1)[None])
        layer["v"].copy_(v.transpose(0, 1)[None])

    def attend(self, q, k, v):
        attended = functional.scaled_dot_product_attention(q.transpose(0, 1)[None], k, v, is_causal=True, enable_gqa=True)
        return attended[0].transpose(0, 1).reshape(len(q), -1)

    def rows_with_logits(self, x):
        return x[-1:]


def f32_logits(model):
    """Of the first step, which begins with tokens of 0."""
    wide = model.in_f32()
    wide.token.zero_()
    with sdpa_kernel(SDPBackend.MATH):
        return wide.step()


def error_of(logits, expected):
    return ((logits.float() - expected).norm() / expected.norm()).item()


def replay_us(graph, stream, host, vocabulary, samples):
    """The median, until the host has read the first sequence's token."""
    token = ctypes.c_int64.from_address(host.data_ptr())
    times = []
    for _ in range(WARM_REPLAYS + samples):
        begin = time.perf_counter_ns()
        graph.replay()
        stream.synchronize()
        is_token = 0 <= token.value < vocabulary
        times.append((time.perf_counter_ns() - begin) / 1e3)
        if not is_token:
            raise RuntimeError(f"token {token.value} is none of the vocabulary")
    return sorted(times[WARM_REPLAYS:])[samples // 2]


def time_us(model, step, expected, samples):
    """Microseconds of a token by `step`, the model's or what was made of it, and how far its logits are from expected."""
    host = torch.empty(len(model.token), dtype=torch.int64, pin_memory=True)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())

    def work():
        logits = step()
        host.copy_(model.token, non_blocking=True)
        return logits

    with torch.cuda.stream(stream):
        for _ in range(WARM_STEPS):  # libraries choose, compile and allocate before the capture
            work()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            logits = work()
        model.token.zero_()
        graph.replay()
        error = error_of(logits, expected)
        if not error <= model.logits_error:
            raise RuntimeError(f"the logits are {error:.3f} from those in f32")
        return replay_us(graph, stream, host, model.shape.vocabulary, samples), error


def try_us(name, *arguments):
    """The time, or None with a line that says why."""
    begin = time.monotonic()
    try:
        us, far = time_us(*arguments)
    except Exception as error:  # each library reports an unsupported case by its own exception
        print(f"  {name}: {' '.join(str(error).split())[:200] or repr(error)}", file=sys.stderr, flush=True)
        torch.cuda.synchronize()
        return None
    print(f"  {name}: {us:.2f} us, logits {far:.4f} from those in f32 ({time.monotonic() - begin:.0f} s)",
          file=sys.stderr, flush=True)
    return us


def measure_plain(model, expected, samples):
    """Time, name, what PyTorch may choose from and the form of the fastest attention; None: there is none."""
    best = None
    for name, backend, model.by_rows in model.attention:
        with sdpa_kernel(backend):
            us = try_us(f"PyTorch, {name}", model, model.step, expected, samples)
        if us is not None and (best is None or us < best[0]):
            best = us, name, backend, model.by_rows
    return best


def measure_case(model, expected, samples):
    """Time and name of the fastest of PyTorch's own operations, and of what torch.compile makes of them."""
    best = measure_plain(model, expected, samples)
    if best is None:
        return
    us, attention, backend, model.by_rows = best
    yield us, f"PyTorch, {attention}"
    torch.compiler.reset()  # without it torch rejects a function that was compiled several times
    step = torch.compile(model.step, mode=model.compile_mode, fullgraph=True, dynamic=False)
    print("  torch.compile: a minute or so", file=sys.stderr, flush=True)
    with sdpa_kernel(backend):
        us = try_us(f"torch.compile, {attention}", model, step, expected, samples)
    if us is not None:
        yield us, f"torch.compile, {attention}"


def cases(models, sequences, contexts, prompts):
    """Label, fields of the objects, and a function that makes the model."""
    for name in models or MODELS:
        shape = MODELS[name]
        for tokens in prompts or []:
            yield (f"{name} bf16 prompt={tokens}", dict(model=name, prompt=tokens),
                   lambda shape=shape, tokens=tokens: Prompt(shape, tokens))
        for count in [] if prompts else sequences or SEQUENCES:
            for context in contexts or CONTEXTS:
                yield (f"{name} bf16 sequences={count} context={context}", dict(model=name, sequences=count, context=context),
                       lambda shape=shape, count=count, context=context: Llama(shape, count, context))


def measure(samples, is_wanted, models=None, sequences=None, contexts=None, prompts=None):
    """The objects of all cases that are wanted: two each, or as many of them as run."""
    torch.set_grad_enabled(False)
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)  # without it products of bf16 are converted to f32 first
    for label, fields, make in cases(models, sequences, contexts, prompts):
        if not is_wanted(label):
            continue
        print(label, file=sys.stderr, flush=True)
        torch.manual_seed(0)
        model = make()
        for us, kernel in measure_case(model, f32_logits(model), samples):
            print(f"{label:42} {us:8.2f} us  {kernel}", flush=True)
            yield dict(kind="llama", weights="bf16", **fields, us=round(us, 4), kernel=kernel)
        del model
        torch.cuda.empty_cache()
