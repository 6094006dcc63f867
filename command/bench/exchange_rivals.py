"""The exchanges of rivals.py: NCCL by torch.distributed, a process for each GPU, captured in CUDA graphs. Sizes are those of
`rondo bench exchange`. A time is that of one exchange in a chain of 500 in one graph, of the slowest rank; the median of the
replays. Where GPUs are connected without NVLink's multicast, set NCCL_NVLS_ENABLE=0."""
import os
import statistics
import tempfile

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing

CHAIN = 500
CASES = [("all_reduce", size) for size in [4096, 8192, 16384, 65536, 262144, 1048576, 4194304]] + [
    (name, size) for name in ["all_gather", "reduce_scatter", "broadcast"] for size in [8192, 1048576]]


def call_of(name, size, ranks):
    """The exchange, whose larger operand has this many bytes."""
    whole = torch.zeros(size // 2, device="cuda", dtype=torch.bfloat16)
    part = torch.zeros(size // 2 // ranks, device="cuda", dtype=torch.bfloat16)
    return {"all_reduce": lambda: distributed.all_reduce(whole),
            "all_gather": lambda: distributed.all_gather_into_tensor(whole, part),
            "reduce_scatter": lambda: distributed.reduce_scatter_tensor(part, whole),
            "broadcast": lambda: distributed.broadcast(whole, 0)}[name]


def time_us(call, samples):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(CHAIN):
                call()
        times = []
        for _ in range(3 + samples):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            call()  # the ranks begin together
            begin.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / CHAIN)
    slowest = torch.tensor(times[3:], device="cuda")
    distributed.all_reduce(slowest, distributed.ReduceOp.MAX)
    del graph
    return statistics.median(slowest.tolist())


def run_rank(rank, ranks, samples, wanted, store, queue):
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", init_method="file://" + store, rank=rank, world_size=ranks)
    for name, size in CASES:
        label = f"{name} of {size} bytes, {ranks} ranks"
        if label not in wanted:
            continue
        us = time_us(call_of(name, size, ranks), samples)
        if rank == 0:
            print(f"{label:40} {us:8.2f} us  NCCL", flush=True)
            queue.put(dict(name=label, us=round(us, 4), kernel="NCCL"))
    if rank == 0:
        queue.put(None)
    distributed.barrier()
    distributed.destroy_process_group()


def measure(samples, is_wanted):
    """The objects of all cases that are wanted."""
    ranks = torch.cuda.device_count()
    labels = [f"{name} of {size} bytes, {ranks} ranks" for name, size in CASES]
    wanted = [label for label in labels if is_wanted(label)]
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (ranks, samples, wanted, os.path.join(folder, "store"), queue)
        processes = multiprocessing.spawn(run_rank, arguments, nprocs=ranks, join=False)
        while (line := queue.get()) is not None:
            yield line
        processes.join()
