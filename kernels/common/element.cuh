/* element.cuh - the C++ type of a rondo_dtype, for the lists of kernels. C++ has no arithmetic type of less
 * than 16 bits: element<> is then an empty struct, which only tells templates apart. */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <rondo.h>

template <rondo_dtype Dtype> struct element_of { struct type; };
template <> struct element_of<RONDO_F64> { using type = double; };
template <> struct element_of<RONDO_F32> { using type = float; };
template <> struct element_of<RONDO_F16> { using type = __half; };
template <> struct element_of<RONDO_BF16> { using type = __nv_bfloat16; };
template <rondo_dtype Dtype> using element = typename element_of<Dtype>::type;
