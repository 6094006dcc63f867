/* plan_moves.c - see plan_moves.h. A node costs more than the bytes of a small tensor. So small tensors share a node,
 * and a small tensor that the tasks touch only once is used in pinned memory, without a copy. */
#include "plan_moves.h"

#include "kernels.h"

/* Small inputs and outputs that the tasks touch only once stay in pinned memory: it saves the kernel that moves them.
 * Measured on an H200 with a copy in between: 6.3 us for 7.8 at 1 KB, 8.6 for 10.5 at 64 KB. Larger ones would gain too
 * where a kernel moves them in pieces as large as a copy's, but the bus is slow with small pieces. */
enum { IN_PLACE_BYTES = 64 * 1024 };

static enum allocation allocation_of(const struct tensor *root) {
  if (tensor_is_resident(root)) return ALLOCATION_RESIDENT;
  if (root->kind == TENSOR_TEMPORARY) return ALLOCATION_ARENA;
  bool is_small = tensor_bytes(root) <= IN_PLACE_BYTES;
  return is_small && !root->is_touched_often && root->reader_count <= 1 ? ALLOCATION_SLOT : ALLOCATION_MOVED;
}

/* One more to move. Gives back the node that moves it, from 0 on, among those of small tensors, or of large ones. */
static uint32_t count_move(struct move_counts *counts, uint64_t bytes) {
  if (bytes > OP_TRANSFER_BYTES) return counts->large_tensors++;
  bool joins = counts->small_nodes && counts->last_tensors < OP_TRANSFER_TENSORS &&
               counts->last_bytes + bytes <= OP_TRANSFER_BYTES;
  counts->last_tensors = joins ? counts->last_tensors + 1 : 1;
  counts->last_bytes = joins ? counts->last_bytes + bytes : bytes;
  counts->small_nodes += !joins;
  counts->small_tensors++;
  return counts->small_nodes - 1;
}

void moves_count(struct moves *moves, const rondo_graph *graph) {
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    const struct tensor *tensor = &graph->tensors[i];
    if (tensor->root != i) continue;
    enum allocation allocation = allocation_of(tensor);
    moves->in_arena += allocation == ALLOCATION_ARENA || allocation == ALLOCATION_MOVED;
    if (allocation == ALLOCATION_MOVED)
      count_move(tensor->kind == TENSOR_INPUT ? &moves->inputs : &moves->outputs, tensor_bytes(tensor));
  }
}

void moves_cut(struct moves *moves, struct cutter *cutter, uint32_t tensor_count) {
  moves->allocations = cut(cutter, tensor_count);
  moves->node_of_tensor = cut(cutter, tensor_count * sizeof(uint32_t));
  moves->tensors = cut(cutter, (move_tensors(&moves->inputs) + move_tensors(&moves->outputs)) * sizeof(uint32_t));
}

void moves_fill(struct moves *moves, const rondo_graph *graph, uint32_t first_output) {
  struct move_counts inputs = {0}, outputs = {0};
  for (uint32_t i = 0; i < graph->tensor_count; i++) {
    const struct tensor *tensor = &graph->tensors[i];
    moves->allocations[i] = tensor->root == i ? (uint8_t)allocation_of(tensor) : moves->allocations[tensor->root];
    moves->node_of_tensor[i] = NO_NODE;
    if (tensor->root != i || moves->allocations[i] != ALLOCATION_MOVED) continue;
    bool is_input = tensor->kind == TENSOR_INPUT, is_large = tensor_bytes(tensor) > OP_TRANSFER_BYTES;
    const struct move_counts *all = is_input ? &moves->inputs : &moves->outputs;
    struct move_counts *so_far = is_input ? &inputs : &outputs;
    uint32_t first_node = (is_input ? 0 : first_output) + (is_large ? all->small_nodes : 0);
    uint32_t first = (is_input ? 0 : move_tensors(&moves->inputs)) +
                     (is_large ? all->small_tensors + so_far->large_tensors : so_far->small_tensors);
    moves->tensors[first] = i;
    moves->node_of_tensor[i] = first_node + count_move(so_far, tensor_bytes(tensor));
  }
}
