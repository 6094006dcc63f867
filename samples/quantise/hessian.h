/* hessian.h - what the inputs of a product say about its weights. An error d of a row of weights changes the row's
 * results by X d over all inputs X; the sum of the squares is d^T H d with H = X^T X. With H = R R^T, R upper
 * triangular, it is |d^T R|^2, and element j of d^T R depends on the errors of columns 0 to j only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "products.h"

enum { HESSIAN_BLOCK = 16 }; /* columns that stay together */

/* An order of the inputs' columns, whose number is a multiple of HESSIAN_BLOCK: by blocks, those with the largest
 * inputs first. Errors of early columns are made up for by more columns than those of late ones. */
void hessian_order(struct grid inputs, int64_t *columns);
/* H of inputs [tokens, n] with their columns in this order, in the upper triangle of [n, n]. To the diagonal it adds
 * `damping` of its mean, without which H may be singular; a diagonal of zeros becomes ones. */
void hessian_of(struct grid inputs, const int64_t *columns, float damping, struct grid hessian);
/* Replaces the upper triangle by R. False if an element of the diagonal is not a positive number. */
bool hessian_factor(struct grid hessian);
/* Copies the upper triangle to the lower one, transposed. */
void hessian_mirror(struct grid factor);
