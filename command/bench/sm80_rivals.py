"""The kernels for sm_80 in cuBLAS, for rivals.py gemm-sm80, beside `rondo bench kernels gemm --portable`. On later chips
cuBLAS prefers other kernels. So all of its algorithms are asked for, with each tile and number of stages, and the best of
them with other splits of k too. An algorithm counts if the name of its kernel, in a captured graph, is one of sm_80."""
import ctypes
import itertools
import re
import sys

import torch

BF16, F32, COMPUTE_F32 = 14, 0, 68  # of cudaDataType_t and cublasComputeType_t
TRANSPOSES_A, TRANSPOSED = 3, 1
CAP_TILES, CAP_OPTIONS, CAP_STAGES = 6, 7, 13
TILE, SPLITS, REDUCTION, SWIZZLE, OPTION, STAGES = 1, 2, 3, 4, 5, 6  # of an algorithm's configuration
REDUCTIONS = (1, 2)  # in place, and in fp32 in the workspace
WORKSPACE_BYTES = 128 << 20
RELAXED, KERNEL_NODE = 2, 0
LARGEST_ERROR = 0.01  # both round to bf16
FINALISTS, MOST_OPTIONS, OTHERS = 3, 16, 4
TYPES = [ctypes.c_int(each) for each in (COMPUTE_F32, F32, BF16, BF16, BF16, BF16)]
NAMES = re.compile("sm80|ampere|cutlass_80|s16816")


class Algorithm(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64 * 8)]

    def with_values(self, lt, values):
        other = Algorithm.from_buffer_copy(self)
        for attribute, value in values.items():
            if lt.cublasLtMatmulAlgoConfigSetAttribute(ctypes.byref(other), attribute, ctypes.byref(ctypes.c_uint32(value)), 4):
                return None
        return other

    def numbers(self, lt, attribute):
        """What it takes: the values of an attribute, none if it has no such attribute."""
        words, written = (ctypes.c_uint32 * 4096)(), ctypes.c_size_t()
        lt.cublasLtMatmulAlgoCapGetAttribute(ctypes.byref(self), attribute, None, 0, ctypes.byref(written))
        if lt.cublasLtMatmulAlgoCapGetAttribute(ctypes.byref(self), attribute, words, written, ctypes.byref(written)):
            return []
        return list(words[:written.value // 4])


class Checked(ctypes.Structure):
    _fields_ = [("algorithm", Algorithm), ("workspace_bytes", ctypes.c_size_t), ("status", ctypes.c_int),
                ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4)]


class Node(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""
    _fields_ = [("function", ctypes.c_void_p), ("sizes", ctypes.c_uint32 * 7), ("parameters", ctypes.c_void_p),
                ("extra", ctypes.c_void_p), ("kernel", ctypes.c_void_p), ("context", ctypes.c_void_p)]


def require(status):
    if status:
        raise RuntimeError(f"cuBLAS or the driver: error {status}")


class Product:
    """out = x W' in bf16; to cuBLAS, whose matrices are stored by columns, out' = W x'."""

    def __init__(self, m, k, count):
        self.lt, self.driver = ctypes.CDLL("libcublasLt.so.13"), ctypes.CDLL("libcuda.so.1")
        self.handle, self.operation = ctypes.c_void_p(), ctypes.c_void_p()
        require(self.lt.cublasLtCreate(ctypes.byref(self.handle)))
        require(self.lt.cublasLtMatmulDescCreate(ctypes.byref(self.operation), COMPUTE_F32, F32))
        require(self.lt.cublasLtMatmulDescSetAttribute(self.operation, TRANSPOSES_A,
                                                       ctypes.byref(ctypes.c_int32(TRANSPOSED)), 4))
        self.w, self.x, self.out = (self.layout(*each) for each in ((k, m), (k, count), (m, count)))
        self.workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")

    def layout(self, rows, columns):
        layout = ctypes.c_void_p()
        require(self.lt.cublasLtMatrixLayoutCreate(ctypes.byref(layout), BF16, ctypes.c_uint64(rows),
                                                   ctypes.c_uint64(columns), ctypes.c_int64(rows)))
        return layout

    def bases(self):
        """Every algorithm as cuBLAS begins it."""
        ids, count = (ctypes.c_int * 512)(), ctypes.c_int()
        require(self.lt.cublasLtMatmulAlgoGetIds(self.handle, *TYPES, 512, ids, ctypes.byref(count)))
        for each in ids[:count.value]:
            base = Algorithm()
            if not self.lt.cublasLtMatmulAlgoInit(self.handle, *TYPES, each, ctypes.byref(base)):
                yield base

    def is_possible(self, algorithm):
        checked = Checked()
        status = self.lt.cublasLtMatmulAlgoCheck(self.handle, self.operation, self.w, self.x, self.out, self.out,
                                                 ctypes.byref(algorithm), ctypes.byref(checked))
        return not status and not checked.status and checked.workspace_bytes <= WORKSPACE_BYTES

    def run(self, algorithm, w, x, out):
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        w, x, out, workspace = (ctypes.c_void_p(each.data_ptr()) for each in (w, x, out, self.workspace))
        require(self.lt.cublasLtMatmul(self.handle, self.operation, ctypes.byref(one), w, self.w, x, self.x,
                                       ctypes.byref(zero), out, self.out, out, self.out, ctypes.byref(algorithm), workspace,
                                       ctypes.c_size_t(WORKSPACE_BYTES), stream))

    def kernels(self, algorithm, *operands):
        """The names of its kernels."""
        graph, count, names = ctypes.c_void_p(), ctypes.c_size_t(), []
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        require(self.driver.cuStreamBeginCapture_v2(stream, RELAXED))
        try:
            self.run(algorithm, *operands)
        finally:
            status = self.driver.cuStreamEndCapture(stream, ctypes.byref(graph))
        require(status)
        require(self.driver.cuGraphGetNodes(graph, None, ctypes.byref(count)))
        nodes = (ctypes.c_void_p * count.value)()
        require(self.driver.cuGraphGetNodes(graph, nodes, ctypes.byref(count)))
        for each in nodes:
            node, name, kind = Node(), ctypes.c_char_p(), ctypes.c_int()
            require(self.driver.cuGraphNodeGetType(ctypes.c_void_p(each), ctypes.byref(kind)))
            if kind.value != KERNEL_NODE:
                continue
            require(self.driver.cuGraphKernelNodeGetParams_v2(ctypes.c_void_p(each), ctypes.byref(node)))
            if node.function:
                require(self.driver.cuFuncGetName(ctypes.byref(name), ctypes.c_void_p(node.function)))
            else:
                require(self.driver.cuKernelGetName(ctypes.byref(name), ctypes.c_void_p(node.kernel)))
            names.append(name.value.decode())
        require(self.driver.cuGraphDestroy(graph))
        return names


def brief_ms(product, algorithm, operands, most):
    """Of one launch, or of the best of four if none before is slower than 1.3 times `most`."""
    best = float("inf")
    for _ in range(4):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        product.run(algorithm, *operands)
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end))
        if best > 1.3 * most:
            break
    return best


def candidates(product, base):
    """The base with every tile, number of stages and option that it names."""
    options = base.numbers(product.lt, CAP_OPTIONS)
    for tile, stages, option in itertools.product(base.numbers(product.lt, CAP_TILES) or [0],
                                                  base.numbers(product.lt, CAP_STAGES) or [0],
                                                  range(min(options[0], MOST_OPTIONS) + 1 if options else 1)):
        algorithm = base.with_values(product.lt, {TILE: tile, STAGES: stages, OPTION: option})
        if algorithm and product.is_possible(algorithm):
            yield algorithm, f"tile {tile}, stages {stages}, option {option}"


def split(product, algorithm, name):
    for splits, reduction, swizzle in itertools.product((1, 2, 3, 4, 6, 8), REDUCTIONS, (0, 1)):
        if splits == 1 and (reduction != REDUCTIONS[0] or swizzle == 0):  # the latter is the algorithm as it was
            continue
        other = algorithm.with_values(product.lt, {SPLITS: splits, REDUCTION: reduction if splits > 1 else 0, SWIZZLE: swizzle})
        if other and product.is_possible(other):
            yield other, f"{name}, {splits} parts, swizzle {swizzle}"


def choose(product, operands):
    """Time of a launch that is not cold, number, algorithm and name of those whose kernels are sm_80's, fastest first."""
    timed, seen = [], {}

    def is_old(algorithm, name):
        try:
            kernels = product.kernels(algorithm, *operands)
            found = any(NAMES.search(each) for each in kernels)
            if found:
                ms = brief_ms(product, algorithm, operands, min((each[0] for each in timed), default=float("inf")))
                timed.append((ms, len(timed), algorithm, f"{kernels[0]}, {name}", name))
            seen[found] = seen.get(found, 0) + 1
            return found
        except RuntimeError as error:
            seen[str(error)] = seen.get(str(error), 0) + 1
            return False

    for base in product.bases():
        others = 0
        for algorithm, name in candidates(product, base):
            others += not is_old(algorithm, name)
            if others == OTHERS:  # the algorithm's other tiles are not sm_80's either
                break
    for _, _, algorithm, _, name in sorted(timed)[:2 * FINALISTS]:
        for other, name_of_other in split(product, algorithm, name):
            is_old(other, name_of_other)
    print(f"  algorithms with kernels for sm_80, and others: {seen}", file=sys.stderr)
    return sorted(timed)


def calls(m, k, _batch, count, copies):
    """Name and call of the fastest few."""
    w = torch.randn(copies, m, k, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(count, k, device="cuda", dtype=torch.bfloat16)
    out = torch.empty(count, m, device="cuda", dtype=torch.bfloat16)
    product, stream = Product(m, k, count), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        chosen = choose(product, (w[0], x, out))
    stream.synchronize()
    expected = torch.mm(x, w[0].t())
    for _, _, algorithm, name, _ in chosen[:FINALISTS]:
        try:
            product.run(algorithm, w[0], x, out)
        except RuntimeError as error:
            print(f"  {name}: {error}", file=sys.stderr)
            continue
        error = ((out - expected).norm() / expected.norm()).item()
        if not error <= LARGEST_ERROR:
            print(f"  {name}: the result is {error:.3f} from torch's", file=sys.stderr)
            continue
        yield name, lambda i, algorithm=algorithm: product.run(algorithm, w[i], x, out)
