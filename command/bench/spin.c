/* spin.c - a task that waits for a given time (spin.h). */
#include "spin.h"

#include <string.h>

#include "timing.h"

/* A kernel that waits for `ns` nanoseconds in each block. */
static const char spin_ptx[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                               ".visible .entry spin(.param .u64 unused, .param .u64 ns, .param .u64 host_ns)\n"
                               ".maxntid 1024, 1, 1\n{\n"
                               ".reg .b64 %rd<6>;\n.reg .pred %p;\n"
                               "ld.param.u64 %rd1, [ns];\nmov.u64 %rd2, %globaltimer;\n"
                               "AGAIN:\nmov.u64 %rd3, %globaltimer;\nsub.u64 %rd4, %rd3, %rd2;\n"
                               "setp.lt.u64 %p, %rd4, %rd1;\n@%p bra AGAIN;\nret;\n}\n";

static void spin_host(void *user, void *const *data) {
  uint64_t ns, begin = timing_now_ns();
  (void)user;
  memcpy(&ns, data[2], sizeof ns);
  while (timing_now_ns() - begin < ns) continue;
}

void spin_add(rondo_graph *graph, uint32_t blocks, uint64_t ns, uint64_t host_ns) {
  rondo_tensor unused; /* a task must have a tensor */
  TRY(rondo_state(graph, "unused", RONDO_U8, 1, (int64_t[]){16}, &unused));
  rondo_argument arguments[] = {{.tensor = unused, .access = RONDO_WRITE},
                                {.value = &ns, .bytes = sizeof ns},
                                {.value = &host_ns, .bytes = sizeof host_ns}};
  TRY(rondo_add_kernel(graph, &(rondo_kernel_desc){.name = "spin",
                                                   .image = spin_ptx,
                                                   .image_bytes = sizeof spin_ptx,
                                                   .function = "spin",
                                                   .grid = {blocks},
                                                   .block = {SPIN_THREADS},
                                                   .arguments = arguments,
                                                   .argument_count = 3,
                                                   .host = spin_host}));
}
