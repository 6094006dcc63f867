/* list_kernels.c - prints the families' lists of kernels for build/compare-kernels: a line for each kernel with its
 * name, the bytes of its parameter struct in C, the most threads of a block, and its chips. */
#include <stdio.h>

#include "../kernels/all_kernels.h"

static void print(const char *name, size_t parameter_bytes, int threads, uint32_t chips) {
  printf("%s %zu %d%s%s%s\n", name, parameter_bytes, threads, chips & CHIP_SM_80 ? " sm_80 compute_80" : "",
         chips & CHIP_SM_90A ? " sm_90a" : "", chips & CHIP_SM_100A ? " sm_100a" : "");
}

#define PRINT(chips, parameters, name, threads, ...) print(#name, sizeof(struct parameters), threads, chips);

int main(void) {
  ALL_KERNELS(PRINT)
  return fflush(stdout) ? 1 : 0;
}
