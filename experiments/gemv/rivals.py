"""cuBLAS through PyTorch on the table's shapes: bf16 and fp8 linear layers of 1..16 vectors, in a CUDA graph, cold."""
import sys, torch
torch.manual_seed(0)
shapes = [(7168, 16384, 1), (4096, 7168, 8), (7168, 2048, 4), (4096, 4096, 1), (14336, 4096, 1), (4096, 14336, 1),
          (128256, 4096, 1), (576, 576, 1), (1536, 576, 1), (576, 1536, 1), (49152, 576, 1)]

def time(fn, copies, size):
    launches = copies * max(1, -(-min(2000, 20_000_000_000 // size) // copies))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(3): fn(i % copies)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(launches): fn(i % copies)
        times = []
        for i in range(9):
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record(stream); graph.replay(); b.record(stream); b.synchronize()
            times.append(a.elapsed_time(b) * 1e3 / launches)
    return sorted(times[2:])[3]

counts = [int(x) for x in sys.argv[1:]] or [1]
for m, k, l in shapes:
    for n in counts:
        line = f"{m}x{k} l{l} n{n}:"
        size = m * k * l * 2
        copies = -(-400_000_000 // size)
        w = torch.randn(copies, l, m, k, device="cuda", dtype=torch.bfloat16)
        x = torch.randn(l, n, k, device="cuda", dtype=torch.bfloat16)
        if l == 1: best = time(lambda i: torch.nn.functional.linear(x[0], w[i, 0]), copies, size)
        else: best = time(lambda i: torch.bmm(x, w[i].transpose(1, 2)), copies, size)
        line += f" bf16 {best:.2f} us ({size / best * 1e-6:.2f} TB/s)"
        if l == 1 and n == 1:
            mv = time(lambda i: torch.mv(w[i, 0], x[0, 0]), copies, size)
            line += f" mv {mv:.2f}"
        del w
        if l == 1 and k % 16 == 0:
            copies = -(-400_000_000 // (m * k))
            w = torch.empty(copies, m, k, device="cuda", dtype=torch.float8_e4m3fn)
            for i in range(copies): w[i] = torch.randn(m, k, device="cuda").to(torch.float8_e4m3fn)
            one = torch.ones((), device="cuda")
            for rows in {n, 16}:
                x8 = torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn)
                try:
                    best = time(lambda i: torch._scaled_mm(x8, w[i].t(), one, one, out_dtype=torch.bfloat16), copies, size)
                    line += f" fp8(x{rows}) {best:.2f} us"
                except Exception as error:
                    line += f" fp8(x{rows}) {type(error).__name__}"
            del w
        torch.cuda.empty_cache()
        print(line, flush=True)
