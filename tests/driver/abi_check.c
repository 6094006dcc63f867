/* abi_check.c - Rondo's own declarations of the CUDA driver against NVIDIA's header, at compile time, where there is
 * one. There is nothing to run: that it compiles is the check. */
#include <cuda.h>
#include <cudaTypedefs.h>

#if CUDA_VERSION < 13000
#error "the declarations are those of CUDA 13.0"
#endif

/* The names that both headers have. */
enum { THEIR_STREAM_NON_BLOCKING = CU_STREAM_NON_BLOCKING, THEIR_EVENT_DISABLE_TIMING = CU_EVENT_DISABLE_TIMING };
#define CU_STREAM_NON_BLOCKING  OUR_STREAM_NON_BLOCKING
#define CU_EVENT_DISABLE_TIMING OUR_EVENT_DISABLE_TIMING

#include "../../runtime/cuda/abi.h"

/* ---- Numbers ----------------------------------------------------------------------------------------------------- */

#define SAME(ours, theirs) static_assert((long long)(ours) == (long long)(theirs), #ours)

SAME(CU_SUCCESS, CUDA_SUCCESS);
SAME(CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CU_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
SAME(CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(CU_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(CU_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME(CU_NVLINK_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE);
SAME(CU_CONTAINED, CUDA_ERROR_CONTAINED);
SAME(CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
SAME(CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(CU_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT);
SAME(CU_PEER_ACCESS_ALREADY_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
SAME(CU_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(CU_ASSERT, CUDA_ERROR_ASSERT);
SAME(CU_HARDWARE_STACK_ERROR, CUDA_ERROR_HARDWARE_STACK_ERROR);
SAME(CU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
SAME(CU_TENSOR_MEMORY_LEAK, CUDA_ERROR_TENSOR_MEMORY_LEAK);
SAME(CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
SAME(CU_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME(CU_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME(CU_EXTERNAL_DEVICE, CUDA_ERROR_EXTERNAL_DEVICE);

SAME(CU_SYMBOL_FOUND, CU_GET_PROC_ADDRESS_SUCCESS);
SAME(CU_SYMBOL_NOT_FOUND, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
SAME(CU_SYMBOL_VERSION_TOO_LOW, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);

SAME(CU_ATTRIBUTE_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CU_ATTRIBUTE_MAX_SHARED_BYTES_PER_BLOCK_OPTIN, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(CU_KERNEL_ATTRIBUTE_MAX_DYNAMIC_SHARED_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(CU_KERNEL_ATTRIBUTE_CLUSTER_WIDTH, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
SAME(CU_KERNEL_ATTRIBUTE_NON_PORTABLE_CLUSTER, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);

SAME(CU_HOST_ALLOC_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
SAME(CU_HOST_ALLOC_DEVICE_MAP, CU_MEMHOSTALLOC_DEVICEMAP);
SAME(OUR_STREAM_NON_BLOCKING, THEIR_STREAM_NON_BLOCKING);
SAME(OUR_EVENT_DISABLE_TIMING, THEIR_EVENT_DISABLE_TIMING);
SAME(CU_RESOURCE_NONE, CU_DEV_RESOURCE_TYPE_INVALID);
SAME(CU_RESOURCE_MULTIPROCESSORS, CU_DEV_RESOURCE_TYPE_SM);
SAME(CU_GREEN_DEFAULT_STREAM, CU_GREEN_CTX_DEFAULT_STREAM);
SAME(CU_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(CU_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME(CU_INSTANTIATE_UPLOAD, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
SAME(CU_PORT_PROGRAMMATIC, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
SAME(CU_EDGE_PROGRAMMATIC, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
SAME(CU_CONDITION_ASSIGN_DEFAULT, CU_GRAPH_COND_ASSIGN_DEFAULT);
SAME(CU_CONDITION_WHILE, CU_GRAPH_COND_TYPE_WHILE);
SAME(CU_NODE_ATTRIBUTE_DEVICE_UPDATABLE, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE);

SAME(CU_MAP_UINT8, CU_TENSOR_MAP_DATA_TYPE_UINT8);
SAME(CU_MAP_FLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
SAME(CU_MAP_FLOAT32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32);
SAME(CU_MAP_BFLOAT16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
SAME(CU_MAP_NOT_INTERLEAVED, CU_TENSOR_MAP_INTERLEAVE_NONE);
SAME(CU_MAP_NOT_SWIZZLED, CU_TENSOR_MAP_SWIZZLE_NONE);
SAME(CU_MAP_SWIZZLE_128, CU_TENSOR_MAP_SWIZZLE_128B);
SAME(CU_MAP_FETCH_AS_NEEDED, CU_TENSOR_MAP_L2_PROMOTION_NONE);
SAME(CU_MAP_FETCH_64, CU_TENSOR_MAP_L2_PROMOTION_L2_64B);
SAME(CU_MAP_FETCH_128, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
SAME(CU_MAP_FETCH_256, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
SAME(CU_MAP_ZEROS_OUTSIDE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);

SAME(CU_NODE_KERNEL, CU_GRAPH_NODE_TYPE_KERNEL);
SAME(CU_NODE_MEMCPY, CU_GRAPH_NODE_TYPE_MEMCPY);
SAME(CU_NODE_MEMSET, CU_GRAPH_NODE_TYPE_MEMSET);
SAME(CU_NODE_HOST, CU_GRAPH_NODE_TYPE_HOST);
SAME(CU_NODE_GRAPH, CU_GRAPH_NODE_TYPE_GRAPH);
SAME(CU_NODE_EMPTY, CU_GRAPH_NODE_TYPE_EMPTY);
SAME(CU_NODE_MEM_ALLOC, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
SAME(CU_NODE_MEM_FREE, CU_GRAPH_NODE_TYPE_MEM_FREE);
SAME(CU_NODE_CONDITIONAL, CU_GRAPH_NODE_TYPE_CONDITIONAL);

/* ---- Layouts ----------------------------------------------------------------------------------------------------- */

#define SAME_MEMBER(our_type, our_member, their_type, their_member)                                                    \
  SAME(offsetof(our_type, our_member), offsetof(their_type, their_member));                                            \
  SAME(sizeof(((our_type *)0)->our_member), sizeof(((their_type *)0)->their_member))

SAME(sizeof(cu_result), sizeof(CUresult));
SAME(sizeof(cu_device), sizeof(CUdevice));
SAME(sizeof(cu_address), sizeof(CUdeviceptr));

SAME(sizeof(struct cu_kernel_node), sizeof(CUDA_KERNEL_NODE_PARAMS_v3));
SAME_MEMBER(struct cu_kernel_node, function, CUDA_KERNEL_NODE_PARAMS_v3, func);
SAME(offsetof(struct cu_kernel_node, grid), offsetof(CUDA_KERNEL_NODE_PARAMS_v3, gridDimX));
SAME(offsetof(struct cu_kernel_node, grid[1]), offsetof(CUDA_KERNEL_NODE_PARAMS_v3, gridDimY));
SAME(offsetof(struct cu_kernel_node, grid[2]), offsetof(CUDA_KERNEL_NODE_PARAMS_v3, gridDimZ));
SAME(offsetof(struct cu_kernel_node, block), offsetof(CUDA_KERNEL_NODE_PARAMS_v3, blockDimX));
SAME(offsetof(struct cu_kernel_node, block[1]), offsetof(CUDA_KERNEL_NODE_PARAMS_v3, blockDimY));
SAME(offsetof(struct cu_kernel_node, block[2]), offsetof(CUDA_KERNEL_NODE_PARAMS_v3, blockDimZ));
SAME_MEMBER(struct cu_kernel_node, shared_bytes, CUDA_KERNEL_NODE_PARAMS_v3, sharedMemBytes);
SAME_MEMBER(struct cu_kernel_node, parameters, CUDA_KERNEL_NODE_PARAMS_v3, kernelParams);
SAME_MEMBER(struct cu_kernel_node, extra, CUDA_KERNEL_NODE_PARAMS_v3, extra);
SAME_MEMBER(struct cu_kernel_node, kernel, CUDA_KERNEL_NODE_PARAMS_v3, kern);
SAME_MEMBER(struct cu_kernel_node, context, CUDA_KERNEL_NODE_PARAMS_v3, ctx);

SAME(sizeof(struct cu_child_node), sizeof(CUDA_CHILD_GRAPH_NODE_PARAMS));
SAME_MEMBER(struct cu_child_node, graph, CUDA_CHILD_GRAPH_NODE_PARAMS, graph);
SAME_MEMBER(struct cu_child_node, ownership, CUDA_CHILD_GRAPH_NODE_PARAMS, ownership);
SAME(0, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE);
SAME(sizeof(struct cu_node_attribute), sizeof(CUlaunchAttributeValue));
SAME_MEMBER(struct cu_node_attribute, is_updatable, CUlaunchAttributeValue, deviceUpdatableKernelNode.deviceUpdatable);
SAME_MEMBER(struct cu_node_attribute, handle, CUlaunchAttributeValue, deviceUpdatableKernelNode.devNode);
SAME(sizeof(struct cu_conditional_node), sizeof(CUDA_CONDITIONAL_NODE_PARAMS));
SAME_MEMBER(struct cu_conditional_node, handle, CUDA_CONDITIONAL_NODE_PARAMS, handle);
SAME_MEMBER(struct cu_conditional_node, type, CUDA_CONDITIONAL_NODE_PARAMS, type);
SAME_MEMBER(struct cu_conditional_node, size, CUDA_CONDITIONAL_NODE_PARAMS, size);
SAME_MEMBER(struct cu_conditional_node, bodies, CUDA_CONDITIONAL_NODE_PARAMS, phGraph_out);
SAME_MEMBER(struct cu_conditional_node, context, CUDA_CONDITIONAL_NODE_PARAMS, ctx);

SAME(sizeof(struct cu_node_parameters), sizeof(CUgraphNodeParams));
SAME_MEMBER(struct cu_node_parameters, type, CUgraphNodeParams, type);
SAME_MEMBER(struct cu_node_parameters, reserved0, CUgraphNodeParams, reserved0);
SAME_MEMBER(struct cu_node_parameters, padding, CUgraphNodeParams, reserved1);
SAME_MEMBER(struct cu_node_parameters, kernel, CUgraphNodeParams, kernel);
SAME_MEMBER(struct cu_node_parameters, child, CUgraphNodeParams, graph);
SAME_MEMBER(struct cu_node_parameters, conditional, CUgraphNodeParams, conditional);
SAME_MEMBER(struct cu_node_parameters, reserved1, CUgraphNodeParams, reserved2);

SAME(CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(CU_MEMORY_HOST, CU_MEMORYTYPE_HOST);
SAME(CU_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(sizeof(struct cu_copy_2d), sizeof(CUDA_MEMCPY2D));
SAME_MEMBER(struct cu_copy_2d, source.x_bytes, CUDA_MEMCPY2D, srcXInBytes);
SAME_MEMBER(struct cu_copy_2d, source.y, CUDA_MEMCPY2D, srcY);
SAME_MEMBER(struct cu_copy_2d, source.memory_type, CUDA_MEMCPY2D, srcMemoryType);
SAME_MEMBER(struct cu_copy_2d, source.host, CUDA_MEMCPY2D, srcHost);
SAME_MEMBER(struct cu_copy_2d, source.device, CUDA_MEMCPY2D, srcDevice);
SAME_MEMBER(struct cu_copy_2d, source.array, CUDA_MEMCPY2D, srcArray);
SAME_MEMBER(struct cu_copy_2d, source.pitch_bytes, CUDA_MEMCPY2D, srcPitch);
SAME_MEMBER(struct cu_copy_2d, destination.x_bytes, CUDA_MEMCPY2D, dstXInBytes);
SAME_MEMBER(struct cu_copy_2d, destination.memory_type, CUDA_MEMCPY2D, dstMemoryType);
SAME_MEMBER(struct cu_copy_2d, destination.host, CUDA_MEMCPY2D, dstHost);
SAME_MEMBER(struct cu_copy_2d, destination.device, CUDA_MEMCPY2D, dstDevice);
SAME_MEMBER(struct cu_copy_2d, destination.pitch_bytes, CUDA_MEMCPY2D, dstPitch);
SAME_MEMBER(struct cu_copy_2d, width_bytes, CUDA_MEMCPY2D, WidthInBytes);
SAME_MEMBER(struct cu_copy_2d, height, CUDA_MEMCPY2D, Height);

SAME(sizeof(struct cu_edge), sizeof(CUgraphEdgeData));
SAME_MEMBER(struct cu_edge, from_port, CUgraphEdgeData, from_port);
SAME_MEMBER(struct cu_edge, to_port, CUgraphEdgeData, to_port);
SAME_MEMBER(struct cu_edge, type, CUgraphEdgeData, type);
SAME_MEMBER(struct cu_edge, reserved, CUgraphEdgeData, reserved);

/* cuGraphExecKernelNodeSetParams takes the older one, which is laid out alike. */
SAME(sizeof(struct cu_kernel_node), sizeof(CUDA_KERNEL_NODE_PARAMS_v2));
SAME(offsetof(struct cu_kernel_node, grid), offsetof(CUDA_KERNEL_NODE_PARAMS_v2, gridDimX));
SAME_MEMBER(struct cu_kernel_node, parameters, CUDA_KERNEL_NODE_PARAMS_v2, kernelParams);
SAME_MEMBER(struct cu_kernel_node, kernel, CUDA_KERNEL_NODE_PARAMS_v2, kern);
SAME_MEMBER(struct cu_kernel_node, context, CUDA_KERNEL_NODE_PARAMS_v2, ctx);

SAME(sizeof(struct cu_resource), sizeof(CUdevResource));
SAME_MEMBER(struct cu_resource, type, CUdevResource, type);
SAME_MEMBER(struct cu_resource, multiprocessors.count, CUdevResource, sm.smCount);
SAME_MEMBER(struct cu_resource, multiprocessors.least, CUdevResource, sm.minSmPartitionSize);
SAME_MEMBER(struct cu_resource, multiprocessors.alignment, CUdevResource, sm.smCoscheduledAlignment);

SAME(sizeof(struct cu_tensor_map), sizeof(CUtensorMap));
SAME(_Alignof(struct cu_tensor_map), _Alignof(CUtensorMap));

SAME(sizeof(struct cu_instantiate_parameters), sizeof(CUDA_GRAPH_INSTANTIATE_PARAMS));
SAME_MEMBER(struct cu_instantiate_parameters, flags, CUDA_GRAPH_INSTANTIATE_PARAMS, flags);
SAME_MEMBER(struct cu_instantiate_parameters, upload_stream, CUDA_GRAPH_INSTANTIATE_PARAMS, hUploadStream);
SAME_MEMBER(struct cu_instantiate_parameters, error_node, CUDA_GRAPH_INSTANTIATE_PARAMS, hErrNode_out);
SAME_MEMBER(struct cu_instantiate_parameters, result, CUDA_GRAPH_INSTANTIATE_PARAMS, result_out);

/* ---- Entry points ------------------------------------------------------------------------------------------------ */

/* Our list once more, with NVIDIA's types for ours: name and version must be there, and the signature the same. */
#define cu_context                CUctx_st
#define cu_library                CUlib_st
#define cu_kernel                 CUkern_st
#define cu_function               CUfunc_st
#define cu_stream                 CUstream_st
#define cu_graph                  CUgraph_st
#define cu_graph_node             CUgraphNode_st
#define cu_graph_exec             CUgraphExec_st
#define cu_event                  CUevent_st
#define cu_green_context          CUgreenCtx_st
#define cu_resource_description   CUdevResourceDesc_st
#define cu_resource               CUdevResource_st
#define cu_edge                   CUgraphEdgeData_st
#define cu_kernel_node            CUDA_KERNEL_NODE_PARAMS_v2_st
#define cu_node_parameters        CUgraphNodeParams_st
#define cu_instantiate_parameters CUDA_GRAPH_INSTANTIATE_PARAMS_st
#define cu_copy_2d                CUDA_MEMCPY2D_st
#define cu_tensor_map             CUtensorMap_st
#define cu_device                 CUdevice
#define cu_address                CUdeviceptr
#define cu_result                 CUresult
#define uint64_t                  cuuint64_t
#define uint32_t                  cuuint32_t

/* Where NVIDIA has an enum we have an int, which the ABI passes alike. */
static_assert(sizeof(CUdevice_attribute) == sizeof(int), "an int");
static_assert(sizeof(CUfunction_attribute) == sizeof(int), "an int");
static_assert(sizeof(CUjit_option) == sizeof(int), "an int");
static_assert(sizeof(CUlibraryOption) == sizeof(int), "an int");
static_assert(sizeof(CUstreamCaptureMode) == sizeof(int), "an int");
static_assert(sizeof(CUstreamCaptureStatus) == sizeof(int), "an int");
static_assert(sizeof(CUgraphNodeType) == sizeof(int), "an int");
static_assert(sizeof(CUdevResourceType) == sizeof(int), "an int");
static_assert(sizeof(CUkernelNodeAttrID) == sizeof(int), "an int");
static_assert(sizeof(CUtensorMapDataType) == sizeof(int), "an int");
static_assert(sizeof(CUtensorMapInterleave) == sizeof(int), "an int");
static_assert(sizeof(CUtensorMapSwizzle) == sizeof(int), "an int");
static_assert(sizeof(CUtensorMapL2promotion) == sizeof(int), "an int");
static_assert(sizeof(CUtensorMapFloatOOBfill) == sizeof(int), "an int");
typedef CUresult enum_cuDeviceGetAttribute(int *, CUdevice_attribute, CUdevice);
typedef CUresult enum_cuLibraryLoadData(CUlibrary *, const void *, CUjit_option *, void **, unsigned, CUlibraryOption *,
                                        void **, unsigned);
typedef CUresult enum_cuKernelGetAttribute(int *, CUfunction_attribute, CUkernel, CUdevice);
typedef CUresult enum_cuKernelSetAttribute(CUfunction_attribute, int, CUkernel, CUdevice);
typedef CUresult enum_cuPointerGetAttributes(unsigned, CUpointer_attribute *, void **, CUdeviceptr);
typedef CUresult enum_cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *);
typedef CUresult enum_cuStreamBeginCaptureToGraph(CUstream, CUgraph, const CUgraphNode *, const CUgraphEdgeData *,
                                                  size_t, CUstreamCaptureMode);
typedef CUresult enum_cuStreamGetCaptureInfo(CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *,
                                             const CUgraphNode **, const CUgraphEdgeData **, size_t *);
typedef CUresult enum_cuGraphNodeGetType(CUgraphNode, CUgraphNodeType *);
typedef CUresult enum_cuGraphKernelNodeSetAttribute(CUgraphNode, CUkernelNodeAttrID, const CUkernelNodeAttrValue *);
typedef CUresult enum_cuGraphKernelNodeGetAttribute(CUgraphNode, CUkernelNodeAttrID, CUkernelNodeAttrValue *);
typedef CUresult enum_cuDeviceGetDevResource(CUdevice, CUdevResource *, CUdevResourceType);
typedef CUresult enum_cuTensorMapEncodeTiled(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                             const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
                                             CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                             CUtensorMapFloatOOBfill);
typedef CUresult int_cuDeviceGetDevResource(CUdevice, CUdevResource *, int);
typedef CUresult int_cuDeviceGetAttribute(int *, int, CUdevice);
typedef CUresult int_cuLibraryLoadData(CUlibrary *, const void *, int *, void **, unsigned, int *, void **, unsigned);
typedef CUresult int_cuKernelGetAttribute(int *, int, CUkernel, CUdevice);
typedef CUresult int_cuKernelSetAttribute(int, int, CUkernel, CUdevice);
typedef CUresult int_cuPointerGetAttributes(unsigned, int *, void **, CUdeviceptr);
typedef CUresult int_cuThreadExchangeStreamCaptureMode(int *);
typedef CUresult int_cuStreamBeginCaptureToGraph(CUstream, CUgraph, const CUgraphNode *, const CUgraphEdgeData *,
                                                 size_t, int);
typedef CUresult int_cuStreamGetCaptureInfo(CUstream, int *, cuuint64_t *, CUgraph *, const CUgraphNode **,
                                            const CUgraphEdgeData **, size_t *);
typedef CUresult int_cuGraphNodeGetType(CUgraphNode, int *);
/* NVIDIA's value is a union, of which ours has one member. */
typedef CUresult int_cuGraphKernelNodeSetAttribute(CUgraphNode, int, const struct cu_node_attribute *);
typedef CUresult int_cuGraphKernelNodeGetAttribute(CUgraphNode, int, struct cu_node_attribute *);
typedef CUresult int_cuTensorMapEncodeTiled(CUtensorMap *, int, cuuint32_t, void *, const cuuint64_t *,
                                            const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, int, int, int,
                                            int);

#define ENTRY_POINT(name, version, need, ...) typedef CUresult our_##name(__VA_ARGS__);
#include "../../runtime/cuda/entry_points.h"

/* NOLINTBEGIN(bugprone-macro-parentheses): types cannot stand in parentheses here */
#define SAME_FUNCTION(ours, with_int, with_enum, theirs)                                                               \
  static_assert(__builtin_types_compatible_p(ours *, theirs), "the same function");
#define SAME_BUT_FOR_ENUMS(ours, with_int, with_enum, theirs)                                                          \
  static_assert(__builtin_types_compatible_p(ours, with_int), "as ours is expected");                                  \
  static_assert(__builtin_types_compatible_p(with_enum *, theirs), "the same function but for ints");
/* NOLINTEND(bugprone-macro-parentheses) */

/* A function named here gets the second check: the macro adds an argument before the first. */
#define ENUM_cuDeviceGetAttribute              ~, SAME_BUT_FOR_ENUMS
#define ENUM_cuLibraryLoadData                 ~, SAME_BUT_FOR_ENUMS
#define ENUM_cuKernelGetAttribute              ~, SAME_BUT_FOR_ENUMS
#define ENUM_cuKernelSetAttribute              ~, SAME_BUT_FOR_ENUMS
#define ENUM_cuStreamBeginCaptureToGraph       ~, SAME_BUT_FOR_ENUMS
#define ENUM_cuPointerGetAttributes            ~, SAME_BUT_FOR_ENUMS
#define ENUM_cuThreadExchangeStreamCaptureMode ~, SAME_BUT_FOR_ENUMS
#define ENUM_cuStreamGetCaptureInfo            ~, SAME_BUT_FOR_ENUMS
#define ENUM_cuDeviceGetDevResource            ~, SAME_BUT_FOR_ENUMS
#define ENUM_cuGraphNodeGetType                ~, SAME_BUT_FOR_ENUMS
#define ENUM_cuGraphKernelNodeSetAttribute     ~, SAME_BUT_FOR_ENUMS
#define ENUM_cuGraphKernelNodeGetAttribute     ~, SAME_BUT_FOR_ENUMS
#define ENUM_cuTensorMapEncodeTiled            ~, SAME_BUT_FOR_ENUMS
#define SECOND(first, second, ...)             second
#define CHOOSE(...)                            SECOND(__VA_ARGS__)

/* All pasted here, since NVIDIA's header renames functions by macros. */
#define ENTRY_POINT(name, version, need, ...)                                                                          \
  CHOOSE(ENUM_##name, SAME_FUNCTION, ~)(our_##name, int_##name, enum_##name, PFN_##name##_v##version)
#include "../../runtime/cuda/entry_points.h"
