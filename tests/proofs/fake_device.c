/* fake_device.c - see fake_device.h. The fake has the copies and rondo_point; the subject's other two kernels are
 * written here, from what gemv.h promises of them and for no more types than the subject has. */
#include "fake_device.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/common/number.h"
#include "../../kernels/gemv/gemv_quads.h"
#include "../../runtime/kernels.h"
#include "../driver/fake_driver.h"

/* ---- Kernels ----------------------------------------------------------------------------------------------------- */

static void publish(const struct completion *done, uint32_t blocks) {
  for (uint32_t i = 0; done->words && i < blocks; i++)
    __atomic_store_n(&done->words[i], ++done->counts[i], __ATOMIC_RELEASE);
}

static float dot(const uint16_t *a, const uint16_t *b, uint32_t count) {
  float sum = 0;
  for (uint32_t i = 0; i < count; i++) sum += f32_of_f16(a[i]) * f32_of_f16(b[i]);
  return sum;
}

/* Each of the kernels of quads for 16-bit weights: one f16 vector. */
static void gemv(const struct fake_launch *launch) {
  const struct gemv_parameters *p = launch->parameters[0];
  if (p->weight_dtype != RONDO_F16 || p->count != 1 || launch->grid[1] != 1) abort();
  for (uint32_t row = 0; row < p->m; row++) {
    const char *weights = (const char *)p->weights + (size_t)row * p->weight_row;
    float sum = p->scale * dot((const void *)weights, (const void *)p->vectors, p->k);
    if (p->out_dtype == RONDO_F32)
      ((float *)p->out)[row] = sum;
    else
      ((uint16_t *)p->out)[row] = f16_of_f32(sum);
  }
  publish(&p->done, launch->grid[0]);
}

static unsigned char quantize_block(const uint16_t *x, float global_scale, unsigned char *codes) {
  float largest = 0;
  for (int i = 0; i < GEMV_BLOCK; i++) largest = fmaxf(largest, fabsf(f32_of_f16(x[i])));
  unsigned char scale = e4m3_of_f32(largest / (6.0f * global_scale));
  float divisor = f32_of_e4m3(scale) * global_scale;
  for (int i = 0; i < GEMV_BLOCK; i += 2) {
    unsigned low = divisor > 0 ? e2m1_of_f32(f32_of_f16(x[i]) / divisor) : 0;
    unsigned high = divisor > 0 ? e2m1_of_f32(f32_of_f16(x[i + 1]) / divisor) : 0;
    codes[i / 2] = (unsigned char)(low | high << 4);
  }
  return scale;
}

/* rondo_quantize_nvfp4 */
static void quantize(const struct fake_launch *launch) {
  const struct quantize_parameters *p = launch->parameters[0];
  if (p->dtype != RONDO_F16 || p->blocks != p->row_blocks) abort(); /* one row */
  for (size_t block = 0; block < p->blocks; block++)
    p->scales[block] =
        quantize_block((const uint16_t *)p->x + block * GEMV_BLOCK, p->global_scale, p->codes + block * GEMV_BLOCK / 2);
  publish(&p->done, launch->grid[0]);
}

/* ---- Rondo's device code ----------------------------------------------------------------------------------------- */

/* The library's own table is empty where there is no nvcc, which the fake does not need. So Rondo's references to it
 * come here (--wrap in build/programs.ninja), where it is filled before the backend is opened. */
enum { IMAGES_MOST = 256 };

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names. */
extern const struct device_image __real_device_images[];
extern const uint32_t __real_device_image_count;
extern struct device_image __wrap_device_images[IMAGES_MOST];
extern uint32_t __wrap_device_image_count;
struct device_image __wrap_device_images[IMAGES_MOST];
uint32_t __wrap_device_image_count;

static void choose_images(bool is_fake) {
#define SPACED(chips, parameters, name, ...) " " #name
#define LISTED(chips, parameters, name, ...) #name "\0"
  static const char image[] = "fake image: rondo_copy rondo_copy_small rondo_transfer rondo_point "
                              "rondo_repeat_step rondo_await_bell rondo_quantize_nvfp4" GEMV_QUADS_16_KERNELS(SPACED);
  static const char kernels[] =
      "rondo_copy\0rondo_copy_small\0rondo_transfer\0rondo_point\0rondo_repeat_step\0rondo_await_bell\0"
      "rondo_quantize_nvfp4\0" GEMV_QUADS_16_KERNELS(LISTED);
#undef SPACED
#undef LISTED
  __wrap_device_image_count = is_fake ? 1 : __real_device_image_count;
  if (__wrap_device_image_count > IMAGES_MOST) abort();
  for (uint32_t i = 0; i < __wrap_device_image_count; i++)
    __wrap_device_images[i] =
        is_fake ? (struct device_image){"all.cu", image, image + sizeof image, kernels} : __real_device_images[i];
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* ---- The fake ---------------------------------------------------------------------------------------------------- */

static const struct fake_driver *fake;

bool fake_device_prepare(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *symbol = NULL;
  if (library) symbol = dlsym(library, "fake_driver");
  choose_images(symbol != NULL);
  if (!symbol) return false;
  fake_driver_function find;
  memcpy(&find, &symbol, sizeof find);
  fake = find();
  struct fake_settings settings = fake->settings();
  settings.mode = FAKE_IMMEDIATE;
  fake->configure(&settings);
#define REGISTER(chips, parameters, name, ...)                                                                         \
  fake->register_kernel(#name, gemv, 1, (const size_t[]){sizeof(struct parameters)});
  GEMV_QUADS_16_KERNELS(REGISTER)
#undef REGISTER
  fake->register_kernel("rondo_quantize_nvfp4", quantize, 1, (const size_t[]){sizeof(struct quantize_parameters)});
  return true;
}

const char *fake_device_complaint(void) {
  static char text[1024];
  return fake && fake->violations(text, sizeof text) ? text : NULL;
}
