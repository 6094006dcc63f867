/* accumulator_layout - prints the lane and the register of each element of a product of mma.m16n8k16.
 *
 * The sample shows an own kernel in a graph: rondo_add_kernel with an image, which is a fatbin in this program, and
 * with a function that computes the same on the host. The kernel multiplies the identity with a matrix whose elements
 * are their own positions, and writes its registers. Each value is then the position of its register. */
#include <math.h>
#include <rondo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample.h"

enum { SIZE = 16, LANES = 32, REGISTERS = 8 };

/* The compiled layout_probe.cu. Without nvcc it has no bytes. */
extern const unsigned char layout_probe_fatbin[], layout_probe_fatbin_end[];

static const char help[] =
    "usage: accumulator_layout [OPTION VALUE]...\n\n"
    "Prints where a warp keeps the elements of a 16 x 16 product made by two mma.m16n8k16, as measured with a tracer\n"
    "matrix, and compares it with the PTX ISA. On the host the instruction is emulated, so that nothing is "
    "measured.\n\n"
    "  --backend auto|host|cuda  default auto: a GPU if there is one\n"
    "  --replays N               number of replays; default 100\n"
    "  --out FILE.npy            write the registers, float32 [lane 32, register 8]\n";

/* The accumulators of PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type". Registers 0 to 3 hold the
 * left eight columns, registers 4 to 7 the right eight. */
static int documented_row(int lane, int i) { return lane / 4 + (i & 2 ? 8 : 0); }
static int documented_column(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i & 4 ? 8 : 0); }

/* An integer below 2048 as binary16, exactly; and back. */
static uint16_t f16_of_integer(int value) {
  int exponent = value ? ilogb(value) : 0;
  return (uint16_t)(value ? (exponent + 15) << 10 | (value << (10 - exponent) & 0x3ff) : 0);
}
static float integer_of_f16(uint16_t bits) {
  return bits ? ldexpf((float)(1024 + (bits & 0x3ff)), (bits >> 10) - 25) : 0;
}

/* The kernel's function on the host: the product in the documented layout of registers. */
static void layout_probe_emulated(void *user, void *const *data) {
  const uint16_t *a = data[0], *b = data[1];
  float *registers = data[2];
  (void)user;
  for (int lane = 0; lane < LANES; lane++)
    for (int i = 0; i < REGISTERS; i++) {
      float sum = 0;
      for (int k = 0; k < SIZE; k++)
        sum += integer_of_f16(a[documented_row(lane, i) * SIZE + k]) *
               integer_of_f16(b[documented_column(lane, i) * SIZE + k]);
      registers[lane * REGISTERS + i] = sum;
    }
}

/* A is the identity. B has the elements 16 row + column, stored by columns, as the instruction expects. C is then equal
 * to B. */
static void tracer_fill(uint16_t *a, uint16_t *b) {
  for (int row = 0; row < SIZE; row++)
    for (int column = 0; column < SIZE; column++) {
      a[row * SIZE + column] = f16_of_integer(row == column);
      b[column * SIZE + row] = f16_of_integer(SIZE * row + column);
    }
}

/* Prints the map that the values show. Returns the number of registers that differ from the documentation. */
static int map_print(const float *registers) {
  int place[SIZE * SIZE], wrong = 0;
  for (int i = 0; i < SIZE * SIZE; i++) place[i] = -1;
  for (int i = 0; i < LANES * REGISTERS; i++) {
    float value = registers[i];
    int documented =
        SIZE * documented_row(i / REGISTERS, i % REGISTERS) + documented_column(i / REGISTERS, i % REGISTERS);
    wrong += value != (float)documented;
    if (value >= 0 && value < SIZE * SIZE && value == floorf(value)) place[(int)value] = i;
  }
  printf("\nlane.register of each element:\n\n   ");
  for (int column = 0; column < SIZE; column++) printf("  C%02d", column);
  for (int i = 0; i < SIZE * SIZE; i++) {
    if (i % SIZE == 0) printf("\nR%02d", i / SIZE);
    if (place[i] < 0)
      printf("    ?");
    else
      printf(" %2d.%d", place[i] / REGISTERS, place[i] % REGISTERS);
  }
  printf("\n\nFour neighbouring lanes hold a row: its maximum is a loop over registers and two shuffles.\n\n");
  return wrong;
}

int main(int argc, char **argv) {
  struct options options = options_parse(argc, argv, help, 0);
  printf("accumulator_layout: 16 x 16, f16 to f32\n");
  rondo_graph *graph;
  rondo_tensor a, b, registers;
  TRY(rondo_graph_create(NULL, NULL, &graph));
  TRY(rondo_input(graph, "identity", RONDO_F16, 2, (int64_t[]){SIZE, SIZE}, &a));
  TRY(rondo_input(graph, "tracer", RONDO_F16, 2, (int64_t[]){SIZE, SIZE}, &b));
  TRY(rondo_output(graph, "registers", RONDO_F32, 2, (int64_t[]){LANES, REGISTERS}, &registers));
  size_t image_bytes = (size_t)(layout_probe_fatbin_end - layout_probe_fatbin);
  rondo_argument arguments[] = {{.tensor = a, .access = RONDO_READ},
                                {.tensor = b, .access = RONDO_READ},
                                {.tensor = registers, .access = RONDO_WRITE}};
  TRY(rondo_add_kernel(graph, &(rondo_kernel_desc){.name = "probe",
                                                   .image = image_bytes ? layout_probe_fatbin : NULL,
                                                   .image_bytes = image_bytes,
                                                   .function = "layout_probe",
                                                   .block = {LANES, 1, 1},
                                                   .arguments = arguments,
                                                   .argument_count = 3,
                                                   .host = layout_probe_emulated}));

  rondo_runtime *runtime = open_for(graph, &options, 1);
  rondo_info info;
  TRY(rondo_runtime_info(runtime, &info));
  bool emulated = info.backend == RONDO_BACKEND_HOST;
  printf("registers  %s\n",
         emulated ? "emulated from the documentation, not measured" : "measured on the tensor cores");
  rondo_exec *exec;
  rondo_slot slot;
  TRY(rondo_instantiate(runtime, graph, NULL, &exec));
  TRY(rondo_acquire(exec, &slot));
  tracer_fill(rondo_data(slot, a), rondo_data(slot, b));
  bool same = replay_timed(slot, &options, registers);

  float *values = rondo_data(slot, registers);
  bool fine = check("registers that differ from the PTX ISA", map_print(values), 0) && same;
  write_array(&options, &(struct npy){.type = NPY_F32, .rank = 2, .shape = {LANES, REGISTERS}, .data = values});

  TRY(rondo_release(slot));
  TRY(rondo_close_exec(&exec));
  TRY(rondo_graph_destroy(&graph));
  TRY(rondo_close(&runtime));
  return fine ? SAMPLE_OK : SAMPLE_WRONG;
}
