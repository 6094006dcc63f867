/* layer.c - see layer.h. */
#include "layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../chat/dequantize.h"
#include "../sample.h"
#include "gptq.h"
#include "hessian.h"
#include "parallel.h"

/* Of the diagonal's mean. */
#define DAMPING 0.03f

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

static void embed(struct grid x, const struct gguf_tensor *table, const int32_t *tokens) {
  for (int64_t i = 0; i < x.rows; i++) dequantize_row(table, tokens[i], x.data + i * x.stride);
}

static void turn_positions(struct activations *activations) {
  const rondo_graph_llama_desc *desc = activations->desc;
  const int64_t pairs = desc->hidden / desc->query_heads / 2;
  activations->cosines = new_floats(activations->sequence * pairs);
  activations->sines = new_floats(activations->sequence * pairs);
  for (int64_t position = 0; position < activations->sequence; position++)
    for (int64_t pair = 0; pair < pairs; pair++) {
      double angle = (double)position * pow((double)desc->rope_base, -(double)pair / (double)pairs);
      activations->cosines[position * pairs + pair] = (float)cos(angle);
      activations->sines[position * pairs + pair] = (float)sin(angle);
    }
}

void activations_begin(struct activations *activations, const struct gguf *file, const rondo_graph_llama_desc *desc,
                       const int32_t *tokens, int64_t count, int64_t sequence) {
  const int64_t qkv = desc->hidden + 2 * (desc->hidden / desc->query_heads * desc->kv_heads);
  const int64_t inputs = desc->hidden > desc->feed_forward ? desc->hidden : desc->feed_forward;
  const int64_t outputs = qkv > 2 * desc->feed_forward ? qkv : 2 * desc->feed_forward;
  *activations = (struct activations){
      .desc = desc,
      .sequence = sequence,
      .x = {new_floats(count * desc->hidden), count, desc->hidden, desc->hidden},
      .inputs = {new_floats(count * inputs), count, inputs, inputs},
      .outputs = {new_floats(count * outputs), count, outputs, outputs},
  };
  embed(activations->x, llama_file_embedding(file, desc, "token_embd.weight").parts[0], tokens);
  turn_positions(activations);
}

void activations_end(struct activations *activations) {
  free(activations->x.data);
  free(activations->inputs.data);
  free(activations->outputs.data);
  free(activations->cosines);
  free(activations->sines);
}

/* ---- A layer's steps but the products ---------------------------------------------------------------------------- */

static float *row_of(const struct grid *grid, int64_t row) { return grid->data + row * grid->stride; }

struct norm {
  const struct activations *activations;
  const float *weights;
};

static void norm_row(void *context, int64_t row) {
  const struct norm *norm = context;
  const struct activations *activations = norm->activations;
  const float *x = row_of(&activations->x, row);
  float *out = row_of(&activations->inputs, row);
  double squares = 0;
  for (int64_t i = 0; i < activations->x.columns; i++) squares += (double)x[i] * (double)x[i];
  double mean = squares / (double)activations->x.columns;
  float factor = (float)(1 / sqrt(mean + (double)activations->desc->epsilon));
  for (int64_t i = 0; i < activations->x.columns; i++) out[i] = x[i] * factor * norm->weights[i];
}

/* inputs = the norm of x. */
static void take_norm(const struct activations *activations, const struct matrix *weights) {
  float *row = new_floats(activations->x.columns);
  dequantize_row(weights->parts[0], 0, row);
  in_parallel(activations->x.rows, norm_row, &(struct norm){activations, row});
  free(row);
}

/* Turns a head's neighbours 2i and 2i + 1 of each row. */
static void turn_head(const struct activations *activations, struct grid head) {
  const int64_t pairs = head.columns / 2;
  for (int64_t row = 0; row < head.rows; row++) {
    float *pair = row_of(&head, row);
    for (int64_t i = 0; i < pairs; i++, pair += 2) {
      float cosine = activations->cosines[row * pairs + i], sine = activations->sines[row * pairs + i];
      float a = pair[0], b = pair[1];
      pair[0] = a * cosine - b * sine;
      pair[1] = a * sine + b * cosine;
    }
  }
}

/* A head's part of the outputs, for one sequence. */
static struct grid head_of(const struct activations *activations, int64_t sequence, int64_t head) {
  const rondo_graph_llama_desc *desc = activations->desc;
  const int64_t width = desc->hidden / desc->query_heads, first = sequence * activations->sequence;
  return grid_part(activations->outputs, first, head * width,
                   smaller(activations->sequence, activations->outputs.rows - first), width);
}

static void turn_one(void *context, int64_t index) {
  const struct activations *activations = context;
  const int64_t heads = activations->desc->query_heads + activations->desc->kv_heads;
  turn_head(activations, head_of(activations, index / heads, index % heads));
}

/* The softmax of a row's first `count` scores. The others become 0. */
static void softmax(float *scores, int64_t count, int64_t columns, float scale) {
  float largest = -INFINITY, sum = 0;
  for (int64_t i = 0; i < count; i++) largest = fmaxf(largest, scores[i]);
  for (int64_t i = 0; i < count; i++) sum += scores[i] = expf(scale * (scores[i] - largest));
  for (int64_t i = 0; i < count; i++) scores[i] /= sum;
  for (int64_t i = count; i < columns; i++) scores[i] = 0;
}

/* The attention of one head over one sequence, from the outputs to the inputs. */
static void attend_one(void *context, int64_t index) {
  const struct activations *activations = context;
  const rondo_graph_llama_desc *desc = activations->desc;
  const int64_t sequence = index / desc->query_heads, head = index % desc->query_heads;
  const int64_t kv_head = desc->query_heads + head * desc->kv_heads / desc->query_heads;
  const struct grid q = head_of(activations, sequence, head), k = head_of(activations, sequence, kv_head);
  const struct grid v = head_of(activations, sequence, kv_head + desc->kv_heads);
  const int64_t rows = q.rows, width = q.columns;
  struct grid scores = {new_floats(rows * rows), rows, rows, rows};
  struct grid turned = {new_floats(rows * width), width, rows, rows}; /* V^T */
  product(q, k, scores, PRODUCT_SET);
  for (int64_t row = 0; row < rows; row++) {
    softmax(row_of(&scores, row), row + 1, rows, 1 / sqrtf((float)width));
    for (int64_t i = 0; i < width; i++) turned.data[i * rows + row] = row_of(&v, row)[i];
  }
  product(scores, turned, grid_part(activations->inputs, sequence * activations->sequence, head * width, rows, width),
          PRODUCT_SET);
  free(scores.data);
  free(turned.data);
}

static void take_attention(const struct activations *activations) {
  const rondo_graph_llama_desc *desc = activations->desc;
  const int64_t sequences = (activations->x.rows + activations->sequence - 1) / activations->sequence;
  in_parallel(sequences * (desc->query_heads + desc->kv_heads), turn_one, (void *)(uintptr_t)activations);
  in_parallel(sequences * desc->query_heads, attend_one, (void *)(uintptr_t)activations);
}

static void gate_row(void *context, int64_t row) {
  const struct activations *activations = context;
  const float *outputs = row_of(&activations->outputs, row);
  float *inputs = row_of(&activations->inputs, row);
  for (int64_t i = 0; i < activations->desc->feed_forward; i++) {
    float gate = outputs[2 * i];
    inputs[i] = gate / (1 + expf(-gate)) * outputs[2 * i + 1];
  }
}

static void add_row(void *context, int64_t row) {
  const struct activations *activations = context;
  const float *outputs = row_of(&activations->outputs, row);
  float *x = row_of(&activations->x, row);
  for (int64_t i = 0; i < activations->x.columns; i++) x[i] += outputs[i];
}

/* ---- Products ---------------------------------------------------------------------------------------------------- */

static struct packed read_matrix(const struct gguf *file, const struct matrix *matrix) {
  struct packed packed;
  struct weight_fault fault;
  if (matrix_pack(matrix, RONDO_F32, 1, &packed, &fault)) return packed;
  if (!fault.tensor) give_up("no memory for the weights");
  give_up("%s: tensor %s: row %lld, column %lld is %g", file->path, gguf_quote(fault.tensor->name).text,
          (long long)fault.row, (long long)fault.column, (double)fault.value);
}

static double squares_of(struct grid grid) {
  double sum = 0;
  for (int64_t row = 0; row < grid.rows; row++)
    for (int64_t i = 0; i < grid.columns; i++) sum += (double)row_of(&grid, row)[i] * (double)row_of(&grid, row)[i];
  return sum;
}

/* Rounds a matrix for the inputs, and computes the outputs with it. */
static void round_matrix(const struct activations *activations, const struct gguf *file, const struct matrix *matrix,
                         float global_scale, struct rounded_matrix *rounded) {
  const int64_t rows = matrix_rows(matrix), columns = matrix_columns(matrix), tokens = activations->x.rows;
  struct packed weights = read_matrix(file, matrix);
  const struct grid inputs = grid_part(activations->inputs, 0, 0, tokens, columns);
  const struct grid outputs = grid_part(activations->outputs, 0, 0, tokens, rows);
  int64_t *order = malloc((size_t)columns * sizeof *order);
  struct gptq gptq = {
      .weights = {weights.data, rows, columns, columns},
      .columns = order,
      .factor = {new_floats(columns * columns), columns, columns, columns},
      .global_scale = global_scale,
      .codes = malloc((size_t)(rows * columns)),
      .scales = malloc((size_t)(rows * columns / GPTQ_BLOCK)),
      .rounded = {new_floats(rows * columns), rows, columns, columns},
  };
  if (!order || !gptq.codes || !gptq.scales) give_up("no memory for the weights");
  hessian_order(inputs, order);
  hessian_of(inputs, order, DAMPING, gptq.factor);
  if (!hessian_factor(gptq.factor))
    give_up("%s: the text's inputs of tensor %s are not finite", file->path, gguf_quote(matrix->parts[0]->name).text);
  hessian_mirror(gptq.factor);
  double error = gptq_round(&gptq);
  product_in_parallel(inputs, gptq.rounded, outputs, PRODUCT_SET);
  free(order);
  double squares = squares_of(outputs);
  *rounded = (struct rounded_matrix){matrix, gptq.codes, gptq.scales, squares > 0 ? sqrt(error / squares) : 0};
  free(gptq.factor.data);
  free(gptq.rounded.data);
  packed_free(&weights);
}

void layer_round(struct activations *activations, const struct gguf *file, const struct layer_matrices *layer,
                 float global_scale, struct rounded_matrix rounded[LAYER_MATRICES]) {
  const int64_t tokens = activations->x.rows;
  take_norm(activations, &layer->attention_norm);
  round_matrix(activations, file, &layer->qkv, global_scale, &rounded[0]);
  take_attention(activations);
  round_matrix(activations, file, &layer->output, global_scale, &rounded[1]);
  in_parallel(tokens, add_row, activations);
  take_norm(activations, &layer->feed_forward_norm);
  round_matrix(activations, file, &layer->gate_up, global_scale, &rounded[2]);
  in_parallel(tokens, gate_row, activations);
  round_matrix(activations, file, &layer->down, global_scale, &rounded[3]);
  in_parallel(tokens, add_row, activations);
}
