/* stack.c - see stack.h. Names are of exported symbols only; for the others: addr2line -fe FILE OFFSET. */
#include "stack.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void stack_take(struct stack *stack) { stack->depth = backtrace(stack->frames, STACK_DEPTH); }

void stack_describe(const struct stack *stack, char *text, size_t bytes) {
  size_t used = 0;
  text[0] = 0;
  for (int i = 1; i < stack->depth && used < bytes; i++) { /* 0 is stack_take */
    Dl_info info = {0};
    const char *arrow = i > 1 ? " < " : "";
    int written;
    if (!dladdr(stack->frames[i], &info) || !info.dli_fname) {
      written = snprintf(text + used, bytes - used, "%s%p", arrow, stack->frames[i]);
    } else {
      const char *slash = strrchr(info.dli_fname, '/');
      written = snprintf(text + used, bytes - used, "%s%s%s%s+0x%zx", arrow, info.dli_sname ? info.dli_sname : "",
                         info.dli_sname ? "@" : "", slash ? slash + 1 : info.dli_fname,
                         (size_t)((uintptr_t)stack->frames[i] - (uintptr_t)info.dli_fbase));
    }
    used += written > 0 ? (size_t)written : 0;
  }
}
