#!/usr/bin/env python3
"""Measures other libraries on the cases of `rondo bench kernels` and `rondo bench llama`, through PyTorch. Without a group:
bf16 and fp8 products of cuBLAS. Groups: gemm (bf16 products of cuBLAS with 32 to 4096 vectors), gemm-sm80
(sm80_rivals.py), attention and softmax (softmax_rivals.py), qr (qr_rivals.py), llama (llama_rivals.py), layers
(layer_rivals.py), exchange (exchange_rivals.py).

    python3 command/bench/rivals.py [attention] --json rivals.json [--only "bf16 4096x4096"]
    rondo bench kernels [attention] --rivals rivals.json
    python3 command/bench/rivals.py llama --json llama.json [--model smollm2 --sequences 1 --context 512]
    rondo bench llama --rivals llama.json

Run it by hand, on a machine with PyTorch and the GPU of Rondo's run. The method is the same: a graph of launches that
move about 20 GB, or of 2000 launches; copies of the weights, so that 400 MB pass between two uses of a copy; events around
the graph; the median of seven replays. Of several calls that give the same product the fastest counts; "kernel" names it.
fp8 multiplies e4m3 by e4m3 with at least 16 vectors, since cuBLAS takes no fewer. Rondo keeps the vectors in bf16.
"""
import argparse
import json
import re
import sys

import torch

import exchange_rivals
import layer_rivals
import llama_rivals
import qr_rivals
import sm80_rivals
import softmax_rivals

SHAPES = [(7168, 16384, 1), (4096, 7168, 8), (7168, 2048, 4), (4096, 4096, 1), (14336, 4096, 1), (4096, 14336, 1),
          (128256, 4096, 1), (576, 576, 1), (1536, 576, 1), (576, 1536, 1), (49152, 576, 1)]
COUNTS = [1, 2, 4, 8, 16]
GEMM_SHAPES = [(3072, 2048, 1), (2048, 2048, 1), (16384, 2048, 1), (2048, 8192, 1), (6144, 4096, 1), (28672, 4096, 1),
               (4096, 14336, 1), (3072, 576, 1)]
GEMM_COUNTS = [64, 128, 256, 512, 1024, 2048, 4096]
FP8 = torch.float8_e4m3fn


def ceiling(a, b):
    return -(-a // b)


def time_us(call, copies, bytes_of_launch, samples):
    """Microseconds of call(copy), which is captured into one graph again and again."""
    launches = max(1, min(2000, 20_000_000_000 // bytes_of_launch))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(3):  # cuBLAS chooses and allocates outside the capture
            call(i % copies)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(launches):
                call(i % copies)
        times = []
        for i in range(2 + samples):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / launches)
    del graph
    return sorted(times[2:])[samples // 2]


def random(dtype, *shape):
    """Of any size without a temporary much larger than itself."""
    tensor = torch.empty(shape, device="cuda", dtype=dtype)
    for part in tensor.view(-1).split(1 << 26):
        part.copy_(torch.randn(part.shape, device="cuda", dtype=torch.bfloat16))
    return tensor


def bf16_calls(m, k, batch, count, copies):
    """Name and call of every way to have the product: the vectors as rows or columns of the smaller operand, results
    into memory that is there already."""
    w = random(torch.bfloat16, copies, batch, m, k)
    x = random(torch.bfloat16, batch, count, k)
    columns = x.transpose(1, 2).contiguous()
    rows_out = torch.empty(batch, count, m, device="cuda", dtype=torch.bfloat16)
    columns_out = torch.empty(batch, m, count, device="cuda", dtype=torch.bfloat16)
    if batch > 1:
        yield "bmm x W'", lambda i: torch.bmm(x, w[i].transpose(1, 2), out=rows_out)
        yield "bmm W x, x by column", lambda i: torch.bmm(w[i], columns, out=columns_out)
        yield "bmm W x, x by row", lambda i: torch.bmm(w[i], x.transpose(1, 2), out=columns_out)
        return
    if count == 1:
        vector, result = x[0, 0], rows_out[0, 0]
        yield "mv", lambda i: torch.mv(w[i, 0], vector, out=result)
    yield "mm x W'", lambda i: torch.mm(x[0], w[i, 0].t(), out=rows_out[0])
    yield "mm W x, x by column", lambda i: torch.mm(w[i, 0], columns[0], out=columns_out[0])
    yield "mm W x, x by row", lambda i: torch.mm(w[i, 0], x[0].t(), out=columns_out[0])


def fp8_calls(m, k, batch, count, copies):
    """The smaller operand padded to 16 rows, scales for the whole tensor or for each row."""
    if batch > 1 or k % 16 or m % 16:
        return
    w = random(FP8, copies, m, k)
    x = random(FP8, max(16, count), k)
    one = torch.ones((), device="cuda")
    x_scales, w_scales = torch.ones(x.shape[0], 1, device="cuda"), torch.ones(1, m, device="cuda")
    for accumulation, fast in (("", False), (", fast accumulation", True)):
        yield "scaled_mm, a scale a tensor" + accumulation, lambda i, fast=fast: torch._scaled_mm(
            x, w[i].t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=fast)
        yield "scaled_mm, a scale a row" + accumulation, lambda i, fast=fast: torch._scaled_mm(
            x, w[i].t(), scale_a=x_scales, scale_b=w_scales, out_dtype=torch.bfloat16, use_fast_accum=fast)


def fastest(calls, copies, bytes_of_launch, samples):
    best = None
    for name, call in calls:
        try:
            us = time_us(call, copies, bytes_of_launch, samples)
        except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
            print(f"  {name}: {str(error).splitlines()[0][:100]}", file=sys.stderr)
            torch.cuda.synchronize()
            continue
        print(f"  {name}: {us:.2f} us", file=sys.stderr)
        if best is None or us < best[0]:
            best = us, name
    return best


def is_wanted(label, words):
    """As the words of rondo bench kernels --only."""
    return all(re.search(rf"(?<![0-9A-Za-z]){re.escape(word)}(?![0-9A-Za-z])", label) for word in re.split("[ ,]+", words)
               if word)


GEMV_TYPES = [("bf16", 2, bf16_calls), ("e4m3", 1, fp8_calls)]


def measure_products(samples, wanted, types=GEMV_TYPES, shapes=SHAPES, counts=COUNTS):
    for name, element_bytes, calls in types:
        for m, k, batch in shapes:
            for count in counts:
                label = f"{name}:{name} {m}x{k}{f' batch={batch}' if batch > 1 else ''} count={count}"
                if not wanted(label):
                    continue
                print(label, file=sys.stderr, flush=True)
                weight_bytes = m * k * batch * element_bytes
                copies = ceiling(400_000_000, weight_bytes)
                moved = weight_bytes + (m + k) * batch * count * 2 * (count > 16)
                best = fastest(calls(m, k, batch, count, copies), copies, moved, samples)
                torch.cuda.empty_cache()
                if best is None:
                    continue
                us, call = best
                print(f"{label:38} {us:8.2f} us {weight_bytes / us / 1e3:6.0f} GB/s  {call}", flush=True)
                yield {"weights": name, "vectors": name, "out": "bf16", "m": m, "k": k, "batch": batch, "count": count,
                       "bytes": weight_bytes, "us": round(us, 4), "warm": False, "kernel": f"cuBLAS {call}"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("group", nargs="?", choices=["gemv", "gemm", "gemm-sm80", "attention", "softmax", "qr", "llama",
                                                     "layers", "exchange"], default="gemv")
    parser.add_argument("--json", default="rivals.json")
    parser.add_argument("--only", default="", help='such as "bf16 4096x4096 count=1"')
    parser.add_argument("--rival", default="", help='of attention and softmax, a regular expression: "FlashAttention-3|cuDNN"')
    parser.add_argument("--model", action="append", choices=list(llama_rivals.MODELS), help="of llama and layers: only this")
    parser.add_argument("--sequences", "--batch", action="append", type=int, help="of llama; default 1, 4 and 16")
    parser.add_argument("--context", action="append", type=int, help="of llama; default 128, 512 and 4096")
    parser.add_argument("--prompt", action="append", type=int, help="of llama and layers: a prompt of this many tokens")
    parser.add_argument("--samples", type=int, help="replays, of which the median is taken; default 7, of llama 500")
    options = parser.parse_args()
    samples = options.samples or (500 if options.group == "llama" else 7)
    lines = [{"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}]

    def wanted(label):
        return is_wanted(label, options.only)

    if options.group == "gemv":
        measured = measure_products(samples, wanted)
    elif options.group == "gemm":
        measured = measure_products(samples, wanted, GEMV_TYPES, GEMM_SHAPES, GEMM_COUNTS)
    elif options.group == "gemm-sm80":
        measured = measure_products(samples, wanted, [("bf16", 2, sm80_rivals.calls)], GEMM_SHAPES, GEMM_COUNTS)
    elif options.group == "qr":
        measured = qr_rivals.measure(samples, wanted)
    elif options.group == "exchange":
        measured = exchange_rivals.measure(options.samples or 25, wanted)
    elif options.group == "llama":
        measured = llama_rivals.measure(samples, wanted, options.model, options.sequences, options.context, options.prompt)
    elif options.group == "layers":
        measured = layer_rivals.measure(samples, wanted, options.model, options.prompt, time_us)
    else:
        measured = softmax_rivals.measure(options.group, samples, wanted, options.rival)
    for line in measured:
        lines.append(line)
        with open(options.json, "w") as file:  # each time: a library may end the process
            file.write("[\n" + ",\n".join("  " + json.dumps(line) for line in lines) + "\n]\n")


if __name__ == "__main__":
    main()
