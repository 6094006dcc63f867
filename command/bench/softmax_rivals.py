"""The attention and the fused softmax of rivals.py: cuDNN and FlashAttention-2 through PyTorch, FlashAttention-3 if its
package is installed (PyPI fa3-fwd), and a product followed by torch's softmax or maximum. Method, states and inputs are
those of `rondo bench kernels attention` and `softmax` (bench_softmax.c)."""
import math
import re
import sys
import time

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

BF16 = torch.bfloat16
TOKENS, WIDTH = 16384, 2048
LENGTHS, DIMENSIONS = [512, 1024, 2048, 4096, 8192, 16384], [128, 64, 256]
SINGLE = [(1, 32, 32, length, length, 128) for length in (256, 512, 1024)]
DECODE = [(1, 32, 8, 1, length, 128) for length in (1024, 8192, 32768)] + \
         [(16, 32, 8, 1, length, 128) for length in (1024, 4096, 8192)] + [(1, 9, 3, 1, 512, 64)]
GEMM = [(4096, 4096, 64), (4096, 4096, 128), (8192, 1024, 1024), (16384, 512, 512)]
PAUSE_S, LOAD_S, COLD_BYTES = 0.1, 0.2, 400_000_000

try:
    import fa3_fwd_interface as flash3
except ImportError:
    try:
        import flash_attn_interface as flash3
    except ImportError:
        flash3 = None


def cases(group):
    """Each as the objects of --json have it, without a time."""
    def case(kind, batch, heads, kv_heads, queries, keys, dimension, causal=False):
        return dict(kind=kind, batch=batch, heads=heads, kv_heads=kv_heads, queries=queries, keys=keys,
                    dimension=dimension, causal=causal)

    if group == "softmax":
        for shape in GEMM:
            yield case("gemm_softmax", 1, 1, 1, *shape)
        yield case("gemm_rowmax", 1, 1, 1, *GEMM[0])
        return
    for dimension in DIMENSIONS:
        for causal in (False, True):
            for length in LENGTHS if dimension < 256 else [4096]:
                heads, batch = WIDTH // dimension, TOKENS // length
                yield case("prefill", batch, heads, heads, length, length, dimension, causal)
                if length == 4096 and dimension < 256:
                    yield case("prefill", batch, heads, heads // 4, length, length, dimension, causal)
                    yield case("prefill", batch, heads, heads, length // 2, length, dimension, causal)
    for shape in SINGLE:
        yield case("single", *shape)
    for shape in DECODE:
        yield case("decode", *shape)


def label_of(case):
    """As softmax_case_label has it."""
    size = f"{case['queries']}x{case['keys']}"
    if case["kind"].startswith("gemm"):
        return f"{case['kind']} {size} k={case['dimension']}"
    form = "" if case["kind"] == "decode" else "causal " if case["causal"] else "full "
    kv_heads = f" kv_heads={case['kv_heads']}" if case["kv_heads"] != case["heads"] else ""
    return f"{case['kind']} {form}{size} hd={case['dimension']} heads={case['heads']}{kv_heads} batch={case['batch']}"


def flops_of(case):
    q, k = case["queries"], case["keys"]
    pairs = q * k - q * q / 2 if case["causal"] else q * k
    products = 1 if case["kind"].startswith("gemm") else 2
    return 2 * products * pairs * case["dimension"] * case["batch"] * case["heads"]


def bytes_of(case):
    queries, keys = case["batch"] * case["heads"] * case["queries"], case["batch"] * case["kv_heads"] * case["keys"]
    operands = 2 * (queries + keys) * case["dimension"]
    if case["kind"] == "gemm_softmax":
        return operands + 2 * queries * case["keys"]
    return operands + 4 * queries if case["kind"] == "gemm_rowmax" else 2 * operands


def states_of(case):
    return {"prefill": ["pause", "sustained"], "single": ["warm"]}.get(case["kind"], ["cold"])


def replay_us(graph, stream, launches, samples, state):
    """The median of the replays' times, a launch; in the given state."""
    times, dropped = [], 1 if state == "pause" else 2
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    until = time.monotonic() + (LOAD_S if state == "sustained" else 0)
    while time.monotonic() < until:
        graph.replay()
        graph.replay()
        stream.synchronize()
    for _ in range(dropped + samples):
        if state == "pause":
            time.sleep(PAUSE_S)
        begin.record(stream)
        graph.replay()
        end.record(stream)
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / launches)
    return sorted(times[dropped:])[samples // 2]


def time_us(call, copies, case, samples):
    """Microseconds of call(copy) in each state of the case."""
    if states_of(case) == ["cold"]:
        launches = max(1, min(2000, 20_000_000_000 // bytes_of(case)))
    else:
        launches = int(max(4, min(20, 6e12 / flops_of(case))))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(3):
            call(i % copies)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(launches):
                call(i % copies)
        return [replay_us(graph, stream, launches, samples, state) for state in states_of(case)]


def attention_calls(case, copies):
    """Name and call of each rival. Those of PyTorch get heads outside of positions, FlashAttention-3 inside, which is how
    each of them is fastest; all get tensors that are dense."""
    def tensors(heads, positions):
        return [torch.randn(case["batch"], positions, heads, case["dimension"], device="cuda", dtype=BF16)
                for _ in range(copies)]

    q, k, v = (tensors(case["heads"], case["queries"]), tensors(case["kv_heads"], case["keys"]),
               tensors(case["kv_heads"], case["keys"]))
    causal, grouped = case["causal"], case["kv_heads"] != case["heads"]
    if flash3 and case["kind"] == "decode":
        lengths = torch.full((case["batch"],), case["keys"], dtype=torch.int32, device="cuda")
        yield "FlashAttention-3", lambda i: flash3.flash_attn_with_kvcache(q[i], k[i], v[i])
        yield "FlashAttention-3", lambda i: flash3.flash_attn_with_kvcache(q[i], k[i], v[i], cache_seqlens=lengths)
    elif flash3:
        yield "FlashAttention-3", lambda i: flash3.flash_attn_func(q[i], k[i], v[i], causal=causal)
    if causal and case["queries"] != case["keys"]:
        return  # PyTorch aligns the mask's diagonal to the first key, Rondo to the last
    q, k, v = ([x.transpose(1, 2).contiguous() for x in operand] for operand in (q, k, v))
    q, k, v = list(q), list(k), list(v)

    def attend(backend):
        def call(i):
            with sdpa_kernel(backend):
                functional.scaled_dot_product_attention(q[i], k[i], v[i], is_causal=causal, enable_gqa=grouped)
        return call

    yield "cuDNN", attend(SDPBackend.CUDNN_ATTENTION)
    yield "FlashAttention-2", attend(SDPBackend.FLASH_ATTENTION)


def gemm_calls(case, copies):
    m, n, k = case["queries"], case["keys"], case["dimension"]
    a = [torch.randn(m, k, device="cuda", dtype=BF16) / math.sqrt(k) for _ in range(copies)]
    b = [torch.randn(n, k, device="cuda", dtype=BF16) for _ in range(copies)]
    s, p = ([torch.empty(m, n, device="cuda", dtype=BF16) for _ in range(copies)] for _ in range(2))
    if case["kind"] == "gemm_rowmax":
        yield "torch mm + amax", lambda i: torch.amax(torch.mm(a[i], b[i].t(), out=s[i]), 1)
    else:
        yield "torch mm + softmax", lambda i: torch.softmax(torch.mm(a[i], b[i].t(), out=s[i]), 1, out=p[i])


def copies_of(case):
    """So that 400 MB pass between two uses of what must be cold; the products' s and p rotate along."""
    if states_of(case) != ["cold"]:
        return 1
    some_bytes = bytes_of(case)
    if case["kind"] == "gemm_rowmax":
        some_bytes += 2 * case["queries"] * case["keys"]
    return -(-COLD_BYTES // some_bytes)


def measure(group, samples, is_wanted, rival):
    """The objects of all cases that are wanted, of each rival of that name, in each state."""
    torch.set_grad_enabled(False)
    if not flash3:
        print("FlashAttention-3 is not installed (PyPI fa3-fwd)", file=sys.stderr)
    for case in cases(group):
        label = label_of(case)
        if not is_wanted(label):
            continue
        copies = copies_of(case)
        for name, call in (gemm_calls if group == "softmax" else attention_calls)(case, copies):
            if not re.search(rival, name):
                continue
            try:
                times = time_us(call, copies, case, samples)
            except Exception as error:  # each library reports an unsupported case by its own exception
                print(f"{label}: {name}: {str(error).splitlines()[0][:100] if str(error) else error!r}", file=sys.stderr)
                torch.cuda.synchronize()
                continue
            for state, us in zip(states_of(case), times):
                print(f"{label:58} {state:9} {us:8.2f} us {flops_of(case) / us / 1e6:5.0f} TFLOP/s "
                      f"{bytes_of(case) / us / 1e3:5.0f} GB/s  {name}", flush=True)
                yield dict(case, state=state, us=round(us, 4), kernel=name)
        torch.cuda.empty_cache()
