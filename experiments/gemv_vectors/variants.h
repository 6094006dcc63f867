/* variants.h - what a kernel file tells the harness about each of its instances. */
#pragma once
#include <string>
#include <vector>

#include "../gemv/common.cuh"

/* 1: only the instances whose warps cover k exactly, for a quick build */
#ifndef FIRST_FULL
#define FIRST_FULL 0
#endif

struct variant {
  std::string name;
  const void *kernel;
  number_format weights, vectors;
  int threads;
  int block_rows; /* rows of a thread block */
  int covered_k;  /* elements of k that a thread block's warps cover in one go */
  int part_k;     /* of one warp */
  bool full;      /* k must be covered_k exactly */
  int most_vectors;
  int step_k;                  /* k must be a multiple */
  int shared_bytes;            /* dynamic */
  int persistent_blocks = 0;   /* blocks a multiprocessor if the grid is bounded; 0: one block for block_rows rows */
  int groups = 0, split_k = 1; /* streams of a block; parts of k */
  int cluster = 1;
  bool loops = false; /* k may be longer than covered_k */
  int shared_base = 0, shared_bits_per_k = 0;
  int least_vectors = 1;
  int vector_rows = 0, row_padding = 0; /* staged kernel: its vectors in shared memory */
};

std::vector<variant> staged_nvfp4_variants();
std::vector<variant> staged_mixed_variants();
std::vector<variant> staged_wide_variants();
std::vector<variant> quads_nvfp4_variants();
std::vector<variant> quads_mixed_variants();
std::vector<variant> quads_wide_variants();
