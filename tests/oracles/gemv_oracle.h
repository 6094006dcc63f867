/* gemv_oracle.h - products of the operation gemv: a problem becomes operands and one task of a graph, and its result is
 * checked against sums in fp64 of the decoded operands.
 *
 * Operands may be views of larger tensors. What lies around an input is NaN, and what lies around a result is zero and
 * must stay zero. */
#pragma once

#include "../support.h"

enum { MOST_PROBLEMS = 64, PADDING = 32 };

/* A matrix, in a tensor of its own or, if `padded`, as a view of a larger tensor: `margin` elements before each row,
 * PADDING after it, and a row at each end. */
struct operand {
  rondo_dtype dtype;
  uint32_t rank; /* 2 or 3; 1 or 2 for f32 scales */
  int64_t batch, rows, columns;
  int64_t margin;
  bool padded;
  bool blocked; /* scales, 128 x 4: rounded up to whole tiles */
  rondo_tensor whole, view;
  void *data; /* of the whole tensor */
};

struct problem {
  rondo_dtype weights_dtype, vectors_dtype, out_dtype;
  int64_t batch; /* 0: no batch dimension */
  int64_t m, k, count;
  float scale;
  bool row_scales;
  bool one_order;
  bool exact;  /* every sum on the way is a number of fp32: the result is off by nothing */
  bool padded; /* all operands but those that are dense: */
  bool dense_weights, dense_vectors, dense_out;
  int64_t margin;
  double weight_size, vector_size; /* 0: 1 */
  bool calm;                       /* scales in e4m3 are 0.5 to 1.9, that what is added to the sums shows */
  bool blocked_weights, blocked_vectors;
  float norm_epsilon;
  bool norm;
  rondo_dtype bias_dtype; /* 0: none */
  bool bias_for_all;      /* matrices of a batch */
  bool silu_mul;
  rondo_dtype residual_dtype; /* 0: none */
  bool in_place;              /* the residual is out itself */
  float out_global_scale;
  /* Set by problem_add. */
  struct operand weights, weight_scales, vectors, vector_scales, out, norm_weights, bias, residual, out_scales;
};

/* The matrices of the batch: 1 for a problem without a batch dimension. */
int64_t batch_of(const struct problem *problem);

/* The index of an element of the operand in its whole tensor. */
int64_t index_of(const struct operand *o, int64_t batch, int64_t row, int64_t column);

/* The bytes of the whole tensor. */
size_t bytes_of(const struct operand *o);

/* An element of the operand, decoded, without its scale. */
double element_of(const struct operand *o, int64_t batch, int64_t row, int64_t column);

/* An operand of this problem, not yet in a graph. `dense`: never padded. */
struct operand operand_of(const struct problem *problem, rondo_dtype dtype, int64_t rows, int64_t columns, bool dense);

/* The descriptor of the task, after problem_add. */
rondo_gemv_desc problem_desc(const struct problem *p);

/* Adds all operands and the task to the trial's graph, and allocates the operands' data. */
void problem_add(struct trial *trial, struct problem *p);

/* Sets one NVFP4 code. */
void write_code(void *codes, int64_t element, unsigned code);

/* Fills e4m3 and NVFP4 operands with all codes but NaN, others with normal numbers times `size`. Elements of e4m3 are
 * at most 16 in magnitude, unless they are `scales`. */
void operand_fill(struct operand *o, struct random *random, double size, bool scales);

/* Fills all operands. */
void problem_fill(struct problem *p, struct random *random);

/* Uploads all operands. */
void problem_set(struct trial *trial, struct problem *p);

/* A row in fp64, times the scales of NVFP4. */
void decode_row(const struct operand *o, const struct operand *scales, int64_t batch, int64_t row, double *out);

/* The largest finite number of the type. */
double largest_of(rondo_dtype dtype);

/* A number in fp64, and how far a result in fp32 may be from it. */
struct number {
  double value, error;
};

/* One result against its value and bound. `index` names the problem in the message. */
void check_number(const struct problem *p, int index, int64_t batch, int64_t vector, int64_t column,
                  struct number expected, double got);

/* The sums of one result, and the factors of the sum but for the scale of its row. */
struct sums {
  double value, magnitude, weights; /* of w x, |w x|, |w| */
  double largest;                   /* |x| */
  struct number factor;             /* the error is relative */
};

/* Starts the sums of a vector's results. The vector is normalised in place if the problem has a norm. */
struct sums sums_of_vector(const struct problem *p, double *vector);

/* Adds the products of a row and a vector, both decoded. */
struct sums sums_of_row(struct sums sums, const double *weights, const double *vector, int64_t k);

/* The sums of all results, [batch][rows][vectors]; the caller frees them. */
struct sums *problem_sums(const struct problem *p);

/* A sum times its factors, with its bound. */
struct number product_of(const struct problem *p, int64_t batch, int64_t row, const struct sums *sums);

/* Checks the results of one vector, given the sums of the matrix's rows. */
void check_vector(const struct problem *p, int index, int64_t b, int64_t v, const struct sums *sums);

/* Fetches the result and checks all of it. */
void problem_check(struct trial *trial, struct problem *p, int index);

/* Frees the operands' data. */
void problem_end(struct problem *p);

/* Describes and fills `count` problems in one graph. */
void problems_begin(struct trial *trial, rondo_backend backend, struct problem *problems, int count);

/* Replays the graph once and checks all results, and that nothing around them changed. */
void problems_run(struct trial *trial, struct problem *problems, int count);

/* Frees the problems and ends the trial. */
void problems_end(struct trial *trial, struct problem *problems, int count);

/* problems_begin, problems_run and problems_end. */
void check_problems(rondo_backend backend, struct problem *problems, int count);

/* The pairs of types that gemv takes. */
struct pair {
  rondo_dtype weights, vectors;
};

static const struct pair pairs[] = {
    {RONDO_F16, RONDO_F16},   {RONDO_BF16, RONDO_BF16},  {RONDO_E4M3, RONDO_F16},    {RONDO_E4M3, RONDO_BF16},
    {RONDO_NVFP4, RONDO_F16}, {RONDO_NVFP4, RONDO_BF16}, {RONDO_NVFP4, RONDO_NVFP4},
};

enum { PAIRS = sizeof pairs / sizeof pairs[0] };

/* Numbers of vectors: around those at which kernels change. */
static const int64_t counts[] = {1, 2, 3, 4, 5, 8, 9, 15, 16};

enum { COUNTS = sizeof counts / sizeof counts[0] };

static const rondo_dtype outs[] = {RONDO_F32, RONDO_F16, RONDO_BF16};

/* Makes a problem of each shape for each pair of types; the type of the result takes turns. k of a shape is a multiple
 * of 16, and becomes `odd_k` larger if the weights are not NVFP4. Returns the number of problems. */
int for_every_pair(const struct problem *shapes, int shape_count, int64_t odd_k, struct problem *problems);
