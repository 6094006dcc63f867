/* nvfp4_file.h - writes a GGUF file with some tensors of another one in NVFP4. All keys and the other tensors are the
 * same. Beside a tensor x.weight in NVFP4 is x.scale with its factor, as in llama.cpp, which reads such a file too. */
#pragma once

#include "../chat/weights.h"

struct nvfp4_file {
  const struct gguf *source;
  float factor;     /* of all NVFP4 tensors */
  uint8_t **blocks; /* of each tensor of the source: its bytes in NVFP4, allocated by malloc; NULL: it stays as it is */
};

/* Of a file whose tensors all stay as they are. Ends the program if there is no memory. */
struct nvfp4_file nvfp4_file_begin(const struct gguf *source, float factor);
/* Sets a matrix's tensors: its e2m1 codes, a byte each, and its e4m3 scales, in the order of its rows. */
void nvfp4_file_set(struct nvfp4_file *file, const struct matrix *matrix, const uint8_t *codes, const uint8_t *scales);
/* Writes the file, and ends the program with a sentence if that fails; there is then no file of this name, or the old
 * one. */
void nvfp4_file_write(const struct nvfp4_file *file, const char *path);
void nvfp4_file_free(struct nvfp4_file *file);
