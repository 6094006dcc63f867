/* entry_points.h - the driver's functions that Rondo calls: name, the CUDA version of the signature we declare, whether
 * Rondo can do without it, and its parameters. To be included with ENTRY_POINT defined; every function returns
 * cu_result. The version is that of each signature, not of the driver: CUDA 13 changed signatures behind unchanged
 * names, and cuGetProcAddress tells them apart by it. */

ENTRY_POINT(cuDriverGetVersion, 2020, MANDATORY, int *version)
ENTRY_POINT(cuGetErrorName, 6000, MANDATORY, cu_result error, const char **text)
ENTRY_POINT(cuGetErrorString, 6000, MANDATORY, cu_result error, const char **text)
ENTRY_POINT(cuInit, 2000, MANDATORY, unsigned flags)

ENTRY_POINT(cuDeviceGetCount, 2000, MANDATORY, int *count)
ENTRY_POINT(cuDeviceGet, 2000, MANDATORY, cu_device *device, int ordinal)
ENTRY_POINT(cuDeviceGetName, 2000, MANDATORY, char *name, int bytes, cu_device device)
ENTRY_POINT(cuDeviceGetAttribute, 2000, MANDATORY, int *value, int attribute, cu_device device)
ENTRY_POINT(cuDevicePrimaryCtxRetain, 7000, MANDATORY, struct cu_context **context, cu_device device)
ENTRY_POINT(cuDevicePrimaryCtxRelease, 11000, MANDATORY, cu_device device)

ENTRY_POINT(cuCtxPushCurrent, 4000, MANDATORY, struct cu_context *context)
ENTRY_POINT(cuCtxPopCurrent, 4000, MANDATORY, struct cu_context **context)
ENTRY_POINT(cuDeviceCanAccessPeer, 4000, MANDATORY, int *can, cu_device device, cu_device peer)
ENTRY_POINT(cuCtxEnablePeerAccess, 4000, MANDATORY, struct cu_context *peer, unsigned flags)
ENTRY_POINT(cuCtxGetStreamPriorityRange, 5050, MANDATORY, int *least, int *greatest)

ENTRY_POINT(cuDeviceGetDevResource, 12040, OPTIONAL, cu_device device, struct cu_resource *resource, int type)
ENTRY_POINT(cuDevSmResourceSplitByCount, 12040, OPTIONAL, struct cu_resource *groups, unsigned *group_count,
            const struct cu_resource *input, struct cu_resource *remaining, unsigned flags, unsigned least)
ENTRY_POINT(cuDevResourceGenerateDesc, 12040, OPTIONAL, struct cu_resource_description **description,
            struct cu_resource *resources, unsigned count)
ENTRY_POINT(cuGreenCtxCreate, 12040, OPTIONAL, struct cu_green_context **green,
            struct cu_resource_description *description, cu_device device, unsigned flags)
ENTRY_POINT(cuGreenCtxDestroy, 12040, OPTIONAL, struct cu_green_context *green)
ENTRY_POINT(cuCtxFromGreenCtx, 12040, OPTIONAL, struct cu_context **context, struct cu_green_context *green)
ENTRY_POINT(cuGreenCtxStreamCreate, 12050, OPTIONAL, struct cu_stream **stream, struct cu_green_context *green,
            unsigned flags, int priority)

ENTRY_POINT(cuLibraryLoadData, 12000, MANDATORY, struct cu_library **library, const void *image, int *jit_options,
            void **jit_values, unsigned jit_count, int *options, void **values, unsigned count)
ENTRY_POINT(cuLibraryUnload, 12000, MANDATORY, struct cu_library *library)
ENTRY_POINT(cuLibraryGetKernel, 12000, MANDATORY, struct cu_kernel **kernel, struct cu_library *library,
            const char *name)
ENTRY_POINT(cuKernelGetFunction, 12000, MANDATORY, struct cu_function **function, struct cu_kernel *kernel)
ENTRY_POINT(cuKernelGetAttribute, 12000, MANDATORY, int *value, int attribute, struct cu_kernel *kernel,
            cu_device device)
ENTRY_POINT(cuKernelSetAttribute, 12000, MANDATORY, int attribute, int value, struct cu_kernel *kernel,
            cu_device device)
ENTRY_POINT(cuKernelGetParamInfo, 12040, OPTIONAL, struct cu_kernel *kernel, size_t index, size_t *offset,
            size_t *bytes)
ENTRY_POINT(cuFuncLoad, 12040, OPTIONAL, struct cu_function *function)

ENTRY_POINT(cuTensorMapEncodeTiled, 12000, OPTIONAL, struct cu_tensor_map *map, int type, uint32_t rank, void *base,
            const uint64_t *size, const uint64_t *stride_bytes, const uint32_t *box, const uint32_t *step,
            int interleave, int swizzle, int fetch, int outside)

ENTRY_POINT(cuMemAlloc, 3020, MANDATORY, cu_address *memory, size_t bytes)
ENTRY_POINT(cuMemFree, 3020, MANDATORY, cu_address memory)
ENTRY_POINT(cuMemGetInfo, 3020, OPTIONAL, size_t *free_bytes, size_t *total_bytes)
ENTRY_POINT(cuMemHostAlloc, 2020, MANDATORY, void **memory, size_t bytes, unsigned flags)
ENTRY_POINT(cuMemFreeHost, 2000, MANDATORY, void *memory)
ENTRY_POINT(cuMemHostGetDevicePointer, 3020, MANDATORY, cu_address *address, void *memory, unsigned flags)
ENTRY_POINT(cuPointerGetAttributes, 7000, MANDATORY, unsigned count, int *attributes, void **values, cu_address address)
ENTRY_POINT(cuMemcpyHtoDAsync, 3020, MANDATORY, cu_address destination, const void *source, size_t bytes,
            struct cu_stream *stream)
ENTRY_POINT(cuMemcpyDtoHAsync, 3020, MANDATORY, void *destination, cu_address source, size_t bytes,
            struct cu_stream *stream)
ENTRY_POINT(cuMemcpy2DAsync, 3020, MANDATORY, const struct cu_copy_2d *copy, struct cu_stream *stream)
ENTRY_POINT(cuMemsetD8Async, 3020, MANDATORY, cu_address destination, unsigned char value, size_t bytes,
            struct cu_stream *stream)

ENTRY_POINT(cuStreamCreateWithPriority, 5050, MANDATORY, struct cu_stream **stream, unsigned flags, int priority)
ENTRY_POINT(cuStreamDestroy, 4000, MANDATORY, struct cu_stream *stream)
ENTRY_POINT(cuStreamSynchronize, 2000, MANDATORY, struct cu_stream *stream)
ENTRY_POINT(cuStreamQuery, 2000, MANDATORY, struct cu_stream *stream)
ENTRY_POINT(cuStreamWaitEvent, 3020, MANDATORY, struct cu_stream *stream, struct cu_event *event, unsigned flags)
ENTRY_POINT(cuEventCreate, 2000, MANDATORY, struct cu_event **event, unsigned flags)
ENTRY_POINT(cuEventRecord, 2000, MANDATORY, struct cu_event *event, struct cu_stream *stream)
ENTRY_POINT(cuEventQuery, 2000, MANDATORY, struct cu_event *event)
ENTRY_POINT(cuEventDestroy, 4000, MANDATORY, struct cu_event *event)
ENTRY_POINT(cuThreadExchangeStreamCaptureMode, 10010, MANDATORY, int *mode)
ENTRY_POINT(cuStreamBeginCaptureToGraph, 12030, MANDATORY, struct cu_stream *stream, struct cu_graph *graph,
            struct cu_graph_node *const *dependencies, const struct cu_edge *edges, size_t count, int mode)
ENTRY_POINT(cuStreamGetCaptureInfo, 12030, MANDATORY, struct cu_stream *stream, int *status, uint64_t *id,
            struct cu_graph **graph, struct cu_graph_node *const **dependencies, const struct cu_edge **edges,
            size_t *count)
ENTRY_POINT(cuStreamEndCapture, 10000, MANDATORY, struct cu_stream *stream, struct cu_graph **graph)

ENTRY_POINT(cuLaunchHostFunc, 10000, MANDATORY, struct cu_stream *stream, void (*function)(void *data), void *data)

ENTRY_POINT(cuGraphCreate, 10000, MANDATORY, struct cu_graph **graph, unsigned flags)
ENTRY_POINT(cuGraphDestroy, 10000, MANDATORY, struct cu_graph *graph)
ENTRY_POINT(cuGraphAddNode, 12030, MANDATORY, struct cu_graph_node **node, struct cu_graph *graph,
            struct cu_graph_node *const *dependencies, const struct cu_edge *edges, size_t count,
            struct cu_node_parameters *parameters)
ENTRY_POINT(cuGraphConditionalHandleCreate, 12030, OPTIONAL, uint64_t *handle, struct cu_graph *graph,
            struct cu_context *context, unsigned value, unsigned flags)
ENTRY_POINT(cuGraphKernelNodeSetAttribute, 11000, OPTIONAL, struct cu_graph_node *node, int attribute,
            const struct cu_node_attribute *value)
ENTRY_POINT(cuGraphKernelNodeGetAttribute, 11000, OPTIONAL, struct cu_graph_node *node, int attribute,
            struct cu_node_attribute *value)
ENTRY_POINT(cuGraphGetNodes, 10000, MANDATORY, struct cu_graph *graph, struct cu_graph_node **nodes, size_t *count)
ENTRY_POINT(cuGraphNodeGetType, 10000, MANDATORY, struct cu_graph_node *node, int *type)
ENTRY_POINT(cuGraphChildGraphNodeGetGraph, 10000, MANDATORY, struct cu_graph_node *node, struct cu_graph **graph)
ENTRY_POINT(cuGraphInstantiateWithParams, 12000, MANDATORY, struct cu_graph_exec **exec, struct cu_graph *graph,
            struct cu_instantiate_parameters *parameters)
ENTRY_POINT(cuGraphLaunch, 10000, MANDATORY, struct cu_graph_exec *exec, struct cu_stream *stream)
ENTRY_POINT(cuGraphExecKernelNodeSetParams, 12000, MANDATORY, struct cu_graph_exec *exec, struct cu_graph_node *node,
            const struct cu_kernel_node *parameters)
ENTRY_POINT(cuGraphExecDestroy, 10000, MANDATORY, struct cu_graph_exec *exec)

#undef ENTRY_POINT
