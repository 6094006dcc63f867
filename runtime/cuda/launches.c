/* launches.c - see launches.h. The launches that end the graph publish completion if together they have no more blocks
 * than a slot has words.
 *
 * Measured on an H200: up to eight blocks that publish are 0.4 to 0.5 us faster than a node after them, sixteen blocks
 * 0.2 us. With 32 blocks the node is 0.3 us faster. Blocks that count each other by an atomic never win. */
#include "launches.h"

#include <assert.h>
#include <string.h>

#include "../floats.h"
#include "cuda_failure.h"
#include "encode.h"

enum { NO_WORD = UINT8_MAX };

static rondo_status select_launches(const struct device_exec *exec, const struct device_program *program, uint32_t node,
                                    struct op_launches *launches) {
  const struct op_call *call = &program->nodes[node].call;
  launches->count = 0, launches->choice = launches->why = NULL;
  const struct floats floats = floats_default();
  rondo_status status = call->task->op->select(call, &exec->lane->chip, launches);
  floats_set(floats);
  return status;
}

/* The blocks of the node's last launch; 0 if it cannot publish. */
static uint32_t publishing_blocks(const struct device_exec *exec, const struct device_program *program, uint32_t node) {
  struct op_launches launches;
  if (program->nodes[node].user_work) return 0;
  /* An error here occurs again when the node is added, and is returned then. */
  return select_launches(exec, program, node, &launches) == RONDO_OK ? op_publishing_blocks(&launches) : 0;
}

void assign_no_words(const struct device_exec *exec, const struct device_program *program) {
  memset(exec->first_word, NO_WORD, program->node_count);
}

uint32_t assign_words(const struct device_exec *exec, const struct device_program *program, uint32_t *end_count) {
  uint32_t used = 0;
  bool can_publish = true;
  *end_count = 0;
  memset(exec->first_word, 0, program->node_count);
  for (uint32_t n = 0; n < program->node_count; n++)
    for (uint32_t i = 0; i < program->nodes[n].predecessor_count; i++)
      exec->first_word[program->nodes[n].predecessors[i]] = NO_WORD;
  for (uint32_t n = 0; n < program->node_count; n++) {
    if (exec->first_word[n] == NO_WORD) continue;
    (*end_count)++;
    uint32_t blocks = can_publish ? publishing_blocks(exec, program, n) : 0;
    can_publish = blocks && blocks <= COMPLETION_WORDS - used;
    exec->first_word[n] = (uint8_t)used;
    used += can_publish ? blocks : 0;
  }
  if (can_publish) return used;
  assign_no_words(exec, program);
  return 0;
}

struct completion completion_at(const struct device_program *program, uint32_t word) {
  return (struct completion){program->counts + word, (uint64_t *)(void *)(program->words + word)};
}

static rondo_status fill_maps(const struct device_exec *exec, const char *phase, const char *task,
                              struct op_launch *launch) {
  uint32_t failed = 0;
  cu_result result = encode_maps(&exec->device->driver, launch, &failed);
  if (result == CU_SUCCESS) return RONDO_OK;
  if (!exec->device->driver.cuTensorMapEncodeTiled)
    return status_set(RONDO_UNSUPPORTED,
                      "%s: task '%s': kernel '%s' takes a tensor map, and the driver has no cuTensorMapEncodeTiled",
                      phase, task, launch->kernel);
  return device_failed(exec->device, result, "%s: task '%s': map %u of kernel '%s': cuTensorMapEncodeTiled", phase,
                       task, failed, launch->kernel);
}

rondo_status choose_launches(const struct device_exec *exec, const struct device_program *program, uint32_t node,
                             const char *phase, struct op_launches *launches) {
  const char *task = program->nodes[node].call.task->name;
  rondo_status status = select_launches(exec, program, node, launches);
  if (status != RONDO_OK) return status_set(status, "%s: task '%s': %s", phase, task, rondo_error_text());
  const struct op *op = program->nodes[node].call.task->op;
  assert(launches->count <= (op->launches_most ? op->launches_most : 1)); /* there is room for so many */
  for (uint32_t i = 0; i < launches->count; i++) {
    status = fill_maps(exec, phase, task, &launches->items[i]);
    if (status != RONDO_OK) return status;
  }
  if (exec->first_word[node] != NO_WORD) {
    struct op_launch *last = &launches->items[launches->count - 1];
    struct completion completion = completion_at(program, exec->first_word[node]);
    memcpy(last->parameters + last->completion_offset, &completion, sizeof completion);
  }
  return RONDO_OK;
}

/* One of Rondo's own kernels, which take one struct by value. */
void own_kernel_node(struct op_launch *launch, void **parameter, struct cu_kernel_node *kernel_node) {
  *parameter = launch->parameters;
  *kernel_node = (struct cu_kernel_node){.grid = {launch->grid[0], launch->grid[1], launch->grid[2]},
                                         .block = {launch->block[0], launch->block[1], launch->block[2]},
                                         .shared_bytes = launch->shared_bytes,
                                         .parameters = parameter};
}

void user_kernel_node(const struct device_node *node, void **parameters, struct cu_kernel_node *kernel_node) {
  const struct user_work *work = node->user_work;
  for (uint32_t i = 0; i < work->argument_count; i++)
    parameters[i] = work->argument_bytes[i] ? node->call.data[i] : (void *)&node->call.data[i];
  *kernel_node = (struct cu_kernel_node){.grid = {work->grid[0], work->grid[1], work->grid[2]},
                                         .block = {work->block[0], work->block[1], work->block[2]},
                                         .shared_bytes = work->shared_bytes,
                                         .parameters = parameters};
}
