/* abi.h - the little of the CUDA driver's binary interface that Rondo uses, declared by Rondo itself, so that it builds
 * where there is no CUDA toolkit. Handles are opaque; the numbers are those of the driver's ABI, which never change.
 * tests/driver/abi_check.c compares all of it with NVIDIA's header where there is one. */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

struct cu_context;
struct cu_library;
struct cu_kernel;
struct cu_function;
struct cu_stream;
struct cu_graph;
struct cu_graph_node;
struct cu_graph_exec;
struct cu_event;
struct cu_green_context;
struct cu_resource_description;

typedef int32_t cu_device;
typedef uint64_t cu_address; /* of device memory */

typedef enum cu_result {
  CU_SUCCESS = 0,
  CU_INVALID_VALUE = 1,
  CU_OUT_OF_MEMORY = 2,
  CU_STUB_LIBRARY = 34,
  CU_NO_DEVICE = 100,
  CU_NO_BINARY_FOR_GPU = 209,
  CU_ECC_UNCORRECTABLE = 214,
  CU_NVLINK_UNCORRECTABLE = 220,
  CU_CONTAINED = 226,
  CU_INVALID_HANDLE = 400,
  CU_NOT_FOUND = 500,
  CU_NOT_READY = 600,
  CU_ILLEGAL_ADDRESS = 700,
  CU_LAUNCH_TIMEOUT = 702,
  CU_PEER_ACCESS_ALREADY_ENABLED = 704,
  CU_CONTEXT_IS_DESTROYED = 709,
  CU_ASSERT = 710,
  CU_HARDWARE_STACK_ERROR = 714,
  CU_LAUNCH_FAILED = 719,
  CU_TENSOR_MEMORY_LEAK = 721,
  CU_NOT_SUPPORTED = 801,
  CU_CAPTURE_UNSUPPORTED = 900,
  CU_CAPTURE_INVALIDATED = 901,
  CU_EXTERNAL_DEVICE = 911,
  CU_RESULT_WIDTH = INT32_MAX /* any int may come back */
} cu_result;

enum cu_symbol_status { CU_SYMBOL_FOUND = 0, CU_SYMBOL_NOT_FOUND = 1, CU_SYMBOL_VERSION_TOO_LOW = 2 };

enum {
  CU_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_ATTRIBUTE_MAX_SHARED_BYTES_PER_BLOCK_OPTIN = 97,

  CU_KERNEL_ATTRIBUTE_MAX_DYNAMIC_SHARED_BYTES = 8,
  CU_KERNEL_ATTRIBUTE_CLUSTER_WIDTH = 11,
  CU_KERNEL_ATTRIBUTE_NON_PORTABLE_CLUSTER = 14,

  CU_POINTER_MEMORY_TYPE = 2, /* a cu_memory_type; 0: the driver does not know the memory */

  CU_HOST_ALLOC_PORTABLE = 1,
  CU_HOST_ALLOC_DEVICE_MAP = 2,

  CU_STREAM_NON_BLOCKING = 1,
  CU_EVENT_DISABLE_TIMING = 2,

  CU_RESOURCE_NONE = 0, /* type of a cu_resource */
  CU_RESOURCE_MULTIPROCESSORS = 1,
  CU_GREEN_DEFAULT_STREAM = 1,

  CU_CAPTURE_THREAD_LOCAL = 1, /* mode */
  CU_CAPTURE_RELAXED = 2,
  CU_CAPTURE_ACTIVE = 1, /* status */

  CU_INSTANTIATE_UPLOAD = 2,

  CU_PORT_PROGRAMMATIC = 1, /* all blocks have triggered or ended */
  CU_EDGE_PROGRAMMATIC = 1,

  CU_CONDITION_ASSIGN_DEFAULT = 1, /* at each launch */
  CU_CONDITION_WHILE = 1,          /* type of a cu_conditional_node */

  CU_NODE_ATTRIBUTE_DEVICE_UPDATABLE = 13,

  CU_MAP_UINT8 = 0, /* type of a cu_tensor_map's elements */
  CU_MAP_FLOAT16 = 6,
  CU_MAP_FLOAT32 = 7,
  CU_MAP_BFLOAT16 = 9,
  CU_MAP_NOT_INTERLEAVED = 0,
  CU_MAP_NOT_SWIZZLED = 0,
  CU_MAP_SWIZZLE_128 = 3,
  CU_MAP_FETCH_AS_NEEDED = 0,
  CU_MAP_FETCH_64 = 1,
  CU_MAP_FETCH_128 = 2,
  CU_MAP_FETCH_256 = 3,
  CU_MAP_ZEROS_OUTSIDE = 0,
};

enum cu_node_type {
  CU_NODE_KERNEL = 0,
  CU_NODE_MEMCPY = 1,
  CU_NODE_MEMSET = 2,
  CU_NODE_HOST = 3,
  CU_NODE_GRAPH = 4,
  CU_NODE_EMPTY = 5,
  CU_NODE_MEM_ALLOC = 10,
  CU_NODE_MEM_FREE = 11,
  CU_NODE_CONDITIONAL = 13,
};

struct cu_kernel_node {
  struct cu_function *function; /* NULL: `kernel` in `context` */
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;
  void **parameters; /* one address for each of the kernel's parameters; copied by the driver */
  void **extra;
  struct cu_kernel *kernel;
  struct cu_context *context;
};

struct cu_child_node {
  struct cu_graph *graph; /* of which the node gets a copy */
  int32_t ownership;      /* 0: the caller keeps the graph */
};

struct cu_conditional_node {
  uint64_t handle;
  int32_t type;
  uint32_t size;            /* the number of bodies */
  struct cu_graph **bodies; /* out; the driver's own */
  struct cu_context *context;
};

/* Of a kernel node, as far as Rondo sets and gets some. */
struct cu_node_attribute {
  int32_t is_updatable; /* by kernels */
  uint64_t handle;      /* out: for these */
  uint64_t padding[6];
};

/* A tagged union; every unused byte must be zero. */
struct cu_node_parameters {
  int32_t type; /* enum cu_node_type */
  int32_t reserved0[3];
  union {
    int64_t padding[29];
    struct cu_kernel_node kernel;
    struct cu_child_node child;
    struct cu_conditional_node conditional;
  };
  int64_t reserved1;
};

struct cu_edge {
  uint8_t from_port, to_port, type, reserved[5];
};

/* A part of the device. */
struct cu_resource {
  int32_t type;
  uint8_t reserved[92];
  union {
    struct {
      uint32_t count;
      uint32_t least;     /* that can be split off */
      uint32_t alignment; /* counts are multiples of it */
    } multiprocessors;
    uint8_t padding[48];
  };
};

enum cu_memory_type { CU_MEMORY_HOST = 1, CU_MEMORY_DEVICE = 2 };

struct cu_copy_side {
  size_t x_bytes, y;
  int32_t memory_type;
  void *host;
  cu_address device;
  void *array;
  size_t pitch_bytes;
};

struct cu_copy_2d {
  struct cu_copy_side source, destination;
  size_t width_bytes, height;
};

/* The driver's own business. */
struct cu_tensor_map {
  _Alignas(128) uint64_t opaque[16];
};

struct cu_instantiate_parameters {
  uint64_t flags;
  struct cu_stream *upload_stream;
  struct cu_graph_node *error_node; /* out */
  int32_t result;                   /* out */
};

static_assert(sizeof(void *) == 8, "the layouts below are those of 64-bit Linux");
static_assert(sizeof(cu_result) == 4, "an int");
static_assert(sizeof(struct cu_kernel_node) == 72, "CUDA_KERNEL_NODE_PARAMS_v3");
static_assert(offsetof(struct cu_kernel_node, parameters) == 40, "CUDA_KERNEL_NODE_PARAMS_v3");
static_assert(offsetof(struct cu_kernel_node, kernel) == 56, "CUDA_KERNEL_NODE_PARAMS_v3");
static_assert(sizeof(struct cu_conditional_node) == 32, "CUDA_CONDITIONAL_NODE_PARAMS");
static_assert(offsetof(struct cu_conditional_node, bodies) == 16, "CUDA_CONDITIONAL_NODE_PARAMS");
static_assert(sizeof(struct cu_node_attribute) == 64, "CUlaunchAttributeValue");
static_assert(sizeof(struct cu_node_parameters) == 256, "CUgraphNodeParams");
static_assert(offsetof(struct cu_node_parameters, kernel) == 16, "CUgraphNodeParams");
static_assert(offsetof(struct cu_node_parameters, reserved1) == 248, "CUgraphNodeParams");
static_assert(sizeof(struct cu_edge) == 8, "CUgraphEdgeData");
static_assert(sizeof(struct cu_resource) == 144, "CUdevResource_v1");
static_assert(sizeof(struct cu_copy_2d) == 128, "CUDA_MEMCPY2D_v2");
static_assert(offsetof(struct cu_copy_2d, destination) == 56, "CUDA_MEMCPY2D_v2");
static_assert(sizeof(struct cu_tensor_map) == 128, "CUtensorMap");
static_assert(sizeof(struct cu_instantiate_parameters) == 32, "CUDA_GRAPH_INSTANTIATE_PARAMS");
