/* support.c - see support.h. */
#include "support.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* NOLINTBEGIN(bugprone-reserved-identifier): the sanitizers' names. rondo_close leaks the host pool of a lost device on
 * purpose. */
const char *__lsan_default_suppressions(void) __attribute__((visibility("default"), weak));
const char *__lsan_default_suppressions(void) { return "leak:rondo_open_group_abi\n"; }
void __asan_init(void) __attribute__((weak)); /* NULL in a program without AddressSanitizer */
/* NOLINTEND(bugprone-reserved-identifier) */

bool is_under_valgrind(void) {
  const char *preloaded = getenv("LD_PRELOAD"); /* valgrind puts its own library there */
  return preloaded && strstr(preloaded, "vgpreload");
}

void skip_under_valgrind(const char *reason) {
  if (is_under_valgrind()) cr_skip_test("under valgrind %s", reason);
}

void skip_under_sanitizers(void) {
  if (__asan_init) cr_skip_test("takes long under sanitizers");
}

uint32_t rounds_here(uint32_t rounds) { return is_under_valgrind() || __asan_init ? (rounds + 4) / 5 : rounds; }

rondo_status accept_any_task(const struct op_task *task) {
  (void)task;
  return RONDO_OK;
}

int64_t one_item(const struct op_task *task) {
  (void)task;
  return 1;
}

/* ---- Backends and statuses --------------------------------------------------------------------------------------- */

bool keeps_backend;

void require_backend(rondo_backend backend) {
  static rondo_runtime *kept;
  rondo_runtime *runtime = NULL;
  rondo_options options = {.backend = backend};
  if (kept && backend == RONDO_BACKEND_CUDA) return;
  rondo_status status = rondo_open(&options, &runtime);
  if (status == RONDO_NO_DEVICE) cr_skip_test("%s", rondo_error_text());
  require_ok(status, "rondo_open");
  if (keeps_backend && backend == RONDO_BACKEND_CUDA)
    kept = runtime;
  else
    require_ok(rondo_close(&runtime), "rondo_close");
}

/* Device 0 is there: require_backend has asked. */
int32_t device_count(rondo_backend backend) {
  static int32_t known;
  rondo_runtime *runtime = NULL;
  if (backend == RONDO_BACKEND_HOST) return 1;
  if (known) return known;
  do {
    require_ok(rondo_close(&runtime), "rondo_close");
    known++;
  } while (known < RONDO_MAX_RANKS &&
           rondo_open(&(rondo_options){.backend = backend, .device = known}, &runtime) == RONDO_OK);
  return known;
}

void require_ok(rondo_status status, const char *what) {
  if (status != RONDO_OK) cr_assert_fail("%s: %s: %s", what, rondo_status_name(status), rondo_error_text());
}

void require_error(rondo_status got, rondo_status expected, const char *fragment, const char *what) {
  if (got != expected)
    cr_assert_fail("%s: got %s, expected %s (%s)", what, rondo_status_name(got), rondo_status_name(expected),
                   rondo_error_text());
  if (!strstr(rondo_error_text(), fragment))
    cr_assert_fail("%s: the text '%s' does not contain '%s'", what, rondo_error_text(), fragment);
}

/* ---- One graph from description to result ------------------------------------------------------------------------ */

void trial_describe(struct trial *trial, rondo_backend backend) {
  *trial = (struct trial){.backend = backend};
  REQUIRE_OK(rondo_graph_create(NULL, NULL, &trial->graph));
}

void trial_instantiate(struct trial *trial) {
  const char *multiprocessors = getenv("RONDO_TEST_MULTIPROCESSORS");
  rondo_lane lane = {.multiprocessors = multiprocessors ? atoi(multiprocessors) : 0};
  rondo_plan plan;
  REQUIRE_OK(rondo_plan_graph(trial->graph, &plan));
  rondo_options options = {.backend = trial->backend,
                           .device_bytes = plan.device_bytes,
                           .pinned_bytes = plan.pinned_bytes_per_slot,
                           .host_bytes = plan.host_bytes,
                           .host_threads = trial->host_threads,
                           .lanes = &lane,
                           .lane_count = multiprocessors ? 1 : 0};
  REQUIRE_OK(rondo_open(&options, &trial->runtime));
  REQUIRE_OK(rondo_instantiate(trial->runtime, trial->graph, NULL, &trial->exec));
  REQUIRE_OK(rondo_acquire(trial->exec, &trial->slot));
}

void trial_set(struct trial *trial, rondo_tensor tensor, const void *data) {
  uint64_t bytes;
  REQUIRE_OK(rondo_tensor_bytes(tensor, &bytes));
  void *place = rondo_data(trial->slot, tensor);
  if (place)
    memcpy(place, data, bytes);
  else
    REQUIRE_OK(rondo_upload(trial->exec, tensor, data, bytes));
}

void trial_replay(struct trial *trial) {
  REQUIRE_OK(rondo_replay(trial->slot));
  REQUIRE_OK(rondo_wait(trial->slot, RONDO_FOREVER));
}

const void *trial_output(struct trial *trial, rondo_tensor tensor) {
  const void *data = rondo_data(trial->slot, tensor);
  cr_assert_not_null(data, "%s", rondo_error_text());
  return data;
}

void trial_get(struct trial *trial, rondo_tensor tensor, void *data) {
  uint64_t bytes;
  REQUIRE_OK(rondo_tensor_bytes(tensor, &bytes));
  const void *place = rondo_data(trial->slot, tensor);
  if (place)
    memcpy(data, place, bytes);
  else
    REQUIRE_OK(rondo_download(trial->exec, tensor, data, bytes));
}

void trial_end(struct trial *trial) {
  if (trial->exec) REQUIRE_OK(rondo_release(trial->slot));
  REQUIRE_OK(rondo_close_exec(&trial->exec));
  REQUIRE_OK(rondo_graph_destroy(&trial->graph));
  REQUIRE_OK(rondo_close(&trial->runtime));
}

/* ---- Random numbers: splitmix64 (Steele, Lea, Flood 2014) -------------------------------------------------------- */

uint64_t random_bits(struct random *random) {
  uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

double random_uniform(struct random *random) { return (double)(random_bits(random) >> 11) * 0x1p-53; }

double random_normal(struct random *random) {
  double u = 1.0 - random_uniform(random), v = random_uniform(random);
  return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

int64_t random_between(struct random *random, int64_t low, int64_t high) {
  return low + (int64_t)(random_bits(random) % (uint64_t)(high - low + 1));
}

/* ---- Number formats, by another road than kernels/common/number.h: double arithmetic and nearbyint --------------- */

/* 2^exponent, of -1022 to 1023: a product with it is what ldexp gives, of whose calls the oracles make a billion. */
static double power_of_two(int exponent) {
  double power;
  memcpy(&power, &(uint64_t){(uint64_t)(exponent + 1023) << 52}, sizeof power);
  return power;
}

/* The e of 2^e <= magnitude < 2^(e + 1); of what is less than 2^-1022, -1023. */
static int exponent_of(double magnitude) {
  uint64_t bits;
  memcpy(&bits, &magnitude, sizeof bits);
  return (int)(bits >> 52 & 0x7ff) - 1023;
}

static double from_fields(uint32_t sign, int exponent_bits, int mantissa_bits, uint32_t exponent, uint32_t mantissa) {
  int bias = (1 << (exponent_bits - 1)) - 1;
  double magnitude = exponent
                         ? (1.0 + (double)mantissa * power_of_two(-mantissa_bits)) * power_of_two((int)exponent - bias)
                         : (double)mantissa * power_of_two(1 - bias - mantissa_bits);
  return sign ? -magnitude : magnitude;
}

static double from_ieee(uint16_t bits, int exponent_bits, int mantissa_bits) {
  uint32_t mantissa = bits & ((1u << mantissa_bits) - 1u);
  uint32_t exponent = (uint32_t)(bits >> mantissa_bits) & ((1u << exponent_bits) - 1u);
  uint32_t sign = bits >> 15;
  if (exponent == (1u << exponent_bits) - 1u) return mantissa ? NAN : sign ? -INFINITY : INFINITY;
  return from_fields(sign, exponent_bits, mantissa_bits, exponent, mantissa);
}

/* The oracles read numbers a billion times. Every value of these formats is one of float. */
static float f16_values[1 << 16], bf16_values[1 << 16], e4m3_values[1 << 8];

__attribute__((constructor)) static void make_values(void) {
  for (uint32_t bits = 0; bits < 1u << 16; bits++) {
    f16_values[bits] = (float)from_ieee((uint16_t)bits, 5, 10);
    bf16_values[bits] = (float)from_ieee((uint16_t)bits, 8, 7);
  }
  for (uint32_t bits = 0; bits < 1u << 8; bits++)
    e4m3_values[bits] = (bits & 0x7f) == 0x7f ? NAN : (float)from_fields(bits >> 7, 4, 3, bits >> 3 & 15u, bits & 7u);
}

double oracle_f16(uint16_t bits) { return (double)f16_values[bits]; }
double oracle_bf16(uint16_t bits) { return (double)bf16_values[bits]; }
double oracle_e4m3(uint8_t bits) { return (double)e4m3_values[bits]; }

double oracle_e2m1(uint8_t code) {
  static const float values[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  return (double)values[code & 15];
}

static inline uint16_t to_ieee(double value, int exponent_bits, int mantissa_bits) {
  uint32_t infinity = ((1u << exponent_bits) - 1u) << mantissa_bits;
  uint32_t sign = signbit(value) ? 0x8000u : 0u;
  if (isnan(value)) return (uint16_t)(infinity | (1u << (mantissa_bits - 1)));
  double magnitude = fabs(value);
  if (magnitude == 0) return (uint16_t)sign;
  if (isinf(magnitude)) return (uint16_t)(sign | infinity);
  int bias = (1 << (exponent_bits - 1)) - 1, exponent = exponent_of(magnitude);
  int unit = (exponent < 1 - bias ? 1 - bias : exponent) - mantissa_bits;
  double steps = nearbyint(magnitude * power_of_two(-unit)); /* of size 2^unit, exact in double */
  /* Counting in steps from the smallest subnormal makes the carry into the exponent come out by itself. */
  int64_t code = (int64_t)steps;
  if (unit > 1 - bias - mantissa_bits) code += (int64_t)(unit - (1 - bias - mantissa_bits)) << mantissa_bits;
  return (uint16_t)(sign | (code >= (int64_t)infinity ? infinity : (uint32_t)code));
}

uint16_t oracle_to_f16(double value) { return to_ieee(value, 5, 10); }
uint16_t oracle_to_bf16(double value) { return to_ieee(value, 8, 7); }

double oracle_read(rondo_dtype dtype, const void *data, int64_t index) {
  switch (dtype) {
  case RONDO_F64:
    return ((const double *)data)[index];
  case RONDO_F32:
    return (double)((const float *)data)[index];
  case RONDO_F16:
    return oracle_f16(((const uint16_t *)data)[index]);
  case RONDO_BF16:
    return oracle_bf16(((const uint16_t *)data)[index]);
  case RONDO_E4M3:
    return oracle_e4m3(((const uint8_t *)data)[index]);
  case RONDO_NVFP4:
    return oracle_e2m1((uint8_t)(((const uint8_t *)data)[index / 2] >> (index % 2 * 4) & 15));
  case RONDO_I32:
    return ((const int32_t *)data)[index];
  case RONDO_U8:
    return ((const uint8_t *)data)[index];
  }
  cr_assert_fail("oracle_read: dtype %d", (int)dtype);
  return 0;
}

/* Nearest even, 448 at most; NaN stays one. Numbers from 2^e on are multiples of 2^(e - 3), 8 to 15 of them. */
uint8_t oracle_to_e4m3(double value) {
  const uint8_t sign = signbit(value) ? 0x80 : 0;
  if (isnan(value)) return 0x7f;
  const double magnitude = fmin(fabs(value), 448.0);
  const int exponent = magnitude < 0x1p-6 ? -6 : exponent_of(magnitude);
  return (uint8_t)(sign | ((exponent + 6) * 8 + (int)nearbyint(magnitude * power_of_two(3 - exponent))));
}

void oracle_write(rondo_dtype dtype, void *data, int64_t index, double value) {
  switch (dtype) {
  case RONDO_F64:
    ((double *)data)[index] = value;
    return;
  case RONDO_F32:
    ((float *)data)[index] = (float)value;
    return;
  case RONDO_F16:
    ((uint16_t *)data)[index] = oracle_to_f16(value);
    return;
  case RONDO_BF16:
    ((uint16_t *)data)[index] = oracle_to_bf16(value);
    return;
  case RONDO_E4M3:
    ((uint8_t *)data)[index] = oracle_to_e4m3(value);
    return;
  default:
    cr_assert_fail("oracle_write: dtype %d", (int)dtype);
  }
}

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

void *promised_memory(void *user, size_t bytes, size_t alignment) {
  (void)user, (void)alignment;
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

void release_promised(void *user, void *memory, size_t bytes) {
  (void)user;
  munmap(memory, bytes);
}
