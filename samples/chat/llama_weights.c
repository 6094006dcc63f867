/* llama_weights.c - see llama_weights.h. */
#include "llama_weights.h"

#include "../sample.h"
#include "llama_file.h"

static _Noreturn void refuse_weight(const struct gguf *file, const struct weight_fault *fault, rondo_dtype dtype) {
  if (!fault->tensor) give_up("no memory for the weights");
  give_up("%s: tensor %s: row %lld, column %lld is %g, which %s cannot express", file->path,
          gguf_quote(fault->tensor->name).text, (long long)fault->row, (long long)fault->column, (double)fault->value,
          rondo_dtype_name(dtype));
}

/* Where the weights of a file go. */
struct destination {
  const struct gguf *file;
  rondo_exec *exec;
  float nvfp4_scale;
};

static void upload(const struct destination *to, const struct matrix *matrix, rondo_dtype dtype, rondo_tensor tensor,
                   rondo_tensor scales) {
  struct packed packed;
  struct weight_fault fault;
  if (!matrix_pack(matrix, dtype, to->nvfp4_scale, &packed, &fault)) refuse_weight(to->file, &fault, dtype);
  const rondo_content contents[] = {{tensor, packed.data, packed.data_bytes},
                                    {scales, packed.scales, packed.scale_bytes}};
  TRY(rondo_upload_all(to->exec, contents, packed.scale_bytes > 0 ? 2 : 1));
  packed_free(&packed);
}

void llama_weights_upload(const struct gguf *file, const rondo_graph_llama_desc *desc,
                          const rondo_graph_llama_tensors *tensors, rondo_exec *exec) {
  const struct destination to = {file, exec, desc->nvfp4_scale};
  static const rondo_tensor none;
  for (int32_t i = 0; i < desc->layers; i++) {
    struct layer_matrices layer = llama_file_layer(file, desc, i);
    const rondo_llama_layer *made = &tensors->layers[i];
    upload(&to, &layer.attention_norm, desc->dtype, made->attention_norm, none);
    upload(&to, &layer.qkv, desc->weights, made->qkv, made->qkv_scales);
    upload(&to, &layer.output, desc->weights, made->output, made->output_scales);
    upload(&to, &layer.feed_forward_norm, desc->dtype, made->feed_forward_norm, none);
    upload(&to, &layer.gate_up, desc->weights, made->gate_up, made->gate_up_scales);
    upload(&to, &layer.down, desc->weights, made->down, made->down_scales);
  }
  struct matrix embedding = llama_file_embedding(file, desc, "token_embd.weight");
  struct matrix norm = llama_file_norm(file, desc);
  upload(&to, &embedding, desc->embedding, tensors->embedding, tensors->embedding_scales);
  upload(&to, &norm, desc->dtype, tensors->norm, none);
  if (desc->tied_embedding) return;
  struct matrix head = llama_file_embedding(file, desc, "output.weight");
  upload(&to, &head, desc->embedding, tensors->head, tensors->head_scales);
}
