"""The batched QR of rivals.py: cuBLAS's geqrfBatched, called directly. Method, states and inputs are those of
`rondo bench kernels qr` (bench_qr.c), with one difference: cuBLAS works in place, and so it factors the previous launch's
result. The time is the same."""
import ctypes
import sys

import torch

ROWS = [(8, 8), (16, 16), (32, 32), (64, 64), (128, 128), (256, 256), (128, 16), (256, 16), (128, 32), (256, 32), (512, 32),
        (1024, 32)]
MANY = [(8, 8), (16, 16), (32, 32), (64, 64), (128, 16), (256, 16)]
DTYPES = {"f32": (torch.float32, "cublasSgeqrfBatched"), "f64": (torch.float64, "cublasDgeqrfBatched")}
COLD_BYTES, GRAPH_S, LAUNCHES_MOST = 400_000_000, 0.02, 2000


def cublas():
    """The cuBLAS that PyTorch has loaded. Its name has a version."""
    for version in (13, 12, 11):
        try:
            return ctypes.CDLL(f"libcublas.so.{version}")
        except OSError:
            continue
    raise RuntimeError("no libcublas.so.13, .12 or .11, which PyTorch should have loaded")


def cases():
    """Each as the objects of --json have it, without a time."""
    for dtype in DTYPES:
        for m, n, batch in [(m, n, 1000) for m, n in ROWS] + [(m, n, 10000) for m, n in MANY]:
            yield dict(kind="qr", dtype=dtype, m=m, n=n, batch=batch)
    for dtype in DTYPES:
        for n in [*range(4, 161, 4), 192, 224]:
            if (n, n) not in ROWS:
                yield dict(kind="qr", dtype=dtype, m=n, n=n, batch=1000)


def label_of(case):
    """As qr_case_label has it."""
    return f"qr {case['dtype']} {case['m']}x{case['n']} batch={case['batch']} h+tau"


class Batch:
    """So many matrices, their tau, and where each stands, which cuBLAS reads on the device."""

    def __init__(self, library, case):
        dtype, name = DTYPES[case["dtype"]]
        m, n, batch = case["m"], case["n"], case["batch"]
        self.a = torch.randn(batch, n, m, device="cuda", dtype=dtype)
        self.tau = torch.empty(batch, min(m, n), device="cuda", dtype=dtype)
        self.pointers = [self.places(self.a), self.places(self.tau)]
        self.call, self.sizes = getattr(library, name), (m, n, batch)

    @staticmethod
    def places(tensor):
        return tensor.data_ptr() + torch.arange(tensor.shape[0], device="cuda") * tensor[0].numel() * tensor.element_size()

    def factor(self):
        m, n, batch = self.sizes
        info = ctypes.c_int()
        handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
        status = self.call(handle, m, n, ctypes.c_void_p(self.pointers[0].data_ptr()), m,
                           ctypes.c_void_p(self.pointers[1].data_ptr()), ctypes.byref(info), batch)
        if status or info.value:
            raise RuntimeError(f"status {status}, info {info.value}")


def events_us(stream, work):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record(stream)
    work()
    end.record(stream)
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def time_us(batches, samples):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            once = events_us(stream, batches[0].factor)
        launches = int(max(2, min(LAUNCHES_MOST, GRAPH_S * 1e6 / once)))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(launches):
                batches[i % len(batches)].factor()
        times = [events_us(stream, graph.replay) / launches for _ in range(2 + samples)]
    return sorted(times[2:])[samples // 2]


def measure(samples, is_wanted):
    """The objects of all cases that are wanted, cold, and those of the table warm too."""
    library = cublas()
    for case in cases():
        label = label_of(case)
        if not is_wanted(label):
            continue
        first = Batch(library, case)
        copies = -(-COLD_BYTES // (first.a.numel() * first.a.element_size()))
        batches = [first] + [Batch(library, case) for _ in range(copies - 1)]
        for state in ["cold", "warm"] if (case["m"], case["n"]) in ROWS else ["cold"]:
            try:
                us = time_us(batches if state == "cold" else batches[:1], samples)
            except RuntimeError as error:
                print(f"{label}: {str(error).splitlines()[0][:100]}", file=sys.stderr)
                torch.cuda.synchronize()
                continue
            print(f"{label:34} {state} {us:9.2f} us  cuBLAS", flush=True)
            yield dict(case, state=state, us=round(us, 4), kernel="cuBLAS")
        del first, batches
        torch.cuda.empty_cache()
