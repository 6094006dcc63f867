/* stack.h - the caller: a stack as text, such as "libcuda.so.1+0x1234 < cuGraphLaunch < ...". */
#pragma once

#include <stddef.h>

enum { STACK_DEPTH = 16 };

struct stack {
  void *frames[STACK_DEPTH];
  int depth;
};

/* Neither allocates nor makes a system call, but for the first stack_take of a process. */
void stack_take(struct stack *stack);
void stack_describe(const struct stack *stack, char *text, size_t bytes);
