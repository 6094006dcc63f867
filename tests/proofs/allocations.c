/* allocations.c - see allocations.h. The symbols are defined here, in the program, which the dynamic linker looks at
 * before any library; the calls go on to whoever comes next. mimalloc's library has a malloc too, and its mi_ functions
 * call none of these, so they are counted by themselves. */
#include "allocations.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stack.h"

/* The program is compiled with hidden symbols. */
#define SEEN_BY_LIBRARIES __attribute__((visibility("default")))

void *mi_malloc(size_t bytes);
void mi_free(void *memory);

/* ---- Counting ---------------------------------------------------------------------------------------------------- */

static _Atomic bool counting;
static _Atomic uint64_t ours, foreign, counts[ALLOCATION_CALL_COUNT];
static struct stack first_stack;
static _Thread_local bool is_counter;

/* Where the program, and Rondo in it, begins and ends; the linker's. */
extern const char __executable_start[], etext[]; /* NOLINT(bugprone-reserved-identifier) */

static bool is_program(const void *code) {
  return (uintptr_t)code - (uintptr_t)__executable_start < (uintptr_t)etext - (uintptr_t)__executable_start;
}

/* Did the program ask for the call, be it through a library? Its own part in the stack ends with `caller`. A stack that
 * cannot be followed to its end does not matter on the thread that counts. */
static bool is_ours(const struct stack *stack, const void *caller) {
  if (is_counter || is_program(caller)) return true;
  int i = 0;
  while (i < stack->depth && stack->frames[i] != caller) i++;
  if (i == stack->depth) return true;
  while (i < stack->depth && !is_program(stack->frames[i])) i++;
  return i < stack->depth;
}

__attribute__((noinline)) static void count_from(enum allocation_call call, const void *caller) {
  if (!atomic_load_explicit(&counting, memory_order_relaxed)) return;
  struct stack stack;
  stack_take(&stack);
  bool is_mine = is_ours(&stack, caller);
  if (is_mine) atomic_fetch_add(&counts[call], 1);
  if (atomic_fetch_add(is_mine ? &ours : &foreign, 1) == 0 && (is_mine || !atomic_load(&ours))) first_stack = stack;
}
#define count(call) count_from((call), __builtin_return_address(0))

void allocations_count(void) {
  stack_take(&first_stack); /* its first use loads a library */
  first_stack.depth = 0;
  is_counter = true;
  atomic_store(&ours, 0);
  atomic_store(&foreign, 0);
  for (int i = 0; i < ALLOCATION_CALL_COUNT; i++) atomic_store(&counts[i], 0);
  atomic_store(&counting, true);
}

struct allocations allocations_stop(void) {
  atomic_store(&counting, false);
  is_counter = false;
  return (struct allocations){atomic_load(&ours), atomic_load(&foreign)};
}

static const char *const names[] = {
#define X(name) #name,
    ALLOCATION_CALLS(X)
#undef X
};

void allocations_describe(char *text, size_t bytes) {
  size_t used = 0;
  text[0] = 0;
  for (int i = 0; i < ALLOCATION_CALL_COUNT && used < bytes; i++)
    if (counts[i])
      used += (size_t)snprintf(text + used, bytes - used, "%s %llu, ", names[i], (long long unsigned)counts[i]);
  if (used < bytes) used += (size_t)snprintf(text + used, bytes - used, "the first from ");
  if (used < bytes) stack_describe(&first_stack, text + used, bytes - used);
}

/* ---- Who comes next ---------------------------------------------------------------------------------------------- */

static struct {
  void *(*malloc)(size_t);
  void *(*calloc)(size_t, size_t);
  void *(*realloc)(void *, size_t);
  void *(*aligned_alloc)(size_t, size_t);
  int (*posix_memalign)(void **, size_t, size_t);
  void *(*memalign)(size_t, size_t);
  void *(*valloc)(size_t);
  char *(*strdup)(const char *);
  void (*free)(void *);
  void *(*mi_malloc)(size_t);
  void (*mi_free)(void *);
  int (*brk)(void *);
  void *(*sbrk)(intptr_t);
} next;

/* For what the search itself allocates, and whatever was allocated before it; never given back. The search is over
 * before main, on the only thread. */
static _Alignas(64) unsigned char early[1 << 16];
/* Volatile: dlsym is declared to call nothing in this file, and it does. */
static volatile size_t early_used;
static volatile bool searching;

static void *early_take(size_t bytes, size_t alignment) {
  size_t at = (early_used + alignment - 1) / alignment * alignment;
  if (bytes > sizeof early || at > sizeof early - bytes) abort();
  early_used = at + bytes;
  return early + at;
}

static bool is_early(const void *memory) { return (uintptr_t)memory - (uintptr_t)early < sizeof early; }

/* A data pointer into a function pointer, which ISO C has no cast for. */
static void find(const char *name, void *function) {
  void *found = dlsym(RTLD_NEXT, name);
  memcpy(function, &found, sizeof found);
}

/* False while the search goes on. */
static bool found_next(void) {
  if (next.free) return !searching;
  if (searching) return false;
  searching = true;
  find("malloc", &next.malloc);
  find("calloc", &next.calloc);
  find("realloc", &next.realloc);
  find("aligned_alloc", &next.aligned_alloc);
  find("posix_memalign", &next.posix_memalign);
  find("memalign", &next.memalign);
  find("valloc", &next.valloc);
  find("strdup", &next.strdup);
  find("mi_malloc", &next.mi_malloc);
  find("mi_free", &next.mi_free);
  find("brk", &next.brk);
  find("sbrk", &next.sbrk);
  find("free", &next.free);
  /* The linker may have left mimalloc out, since the program defines all that is asked of it. */
  if (!next.mi_malloc || !next.mi_free) {
    next.mi_malloc = next.malloc;
    next.mi_free = next.free;
  }
  searching = false;
  return true;
}

/* ---- The calls --------------------------------------------------------------------------------------------------- */

SEEN_BY_LIBRARIES void *malloc(size_t bytes) {
  count(CALL_malloc);
  return found_next() ? next.malloc(bytes) : early_take(bytes, 16);
}

SEEN_BY_LIBRARIES void *calloc(size_t items, size_t bytes) {
  count(CALL_calloc);
  if (found_next()) return next.calloc(items, bytes);
  return early_take(items * bytes, 16); /* zero, since it is used once */
}

SEEN_BY_LIBRARIES void *realloc(void *memory, size_t bytes) {
  count(CALL_realloc);
  bool found = found_next();
  if (found && !is_early(memory)) return next.realloc(memory, bytes);
  void *moved = found ? next.malloc(bytes) : early_take(bytes, 16);
  if (!memory || !moved) return moved;
  size_t readable = (size_t)(early + sizeof early - (unsigned char *)memory);
  return memcpy(moved, memory, bytes < readable ? bytes : readable);
}

SEEN_BY_LIBRARIES void *aligned_alloc(size_t alignment, size_t bytes) {
  count(CALL_aligned_alloc);
  return found_next() ? next.aligned_alloc(alignment, bytes) : early_take(bytes, alignment);
}

SEEN_BY_LIBRARIES int posix_memalign(void **memory, size_t alignment, size_t bytes) {
  count(CALL_posix_memalign);
  if (found_next()) return next.posix_memalign(memory, alignment, bytes);
  *memory = early_take(bytes, alignment);
  return 0;
}

SEEN_BY_LIBRARIES void *memalign(size_t alignment, size_t bytes) {
  count(CALL_memalign);
  return found_next() ? next.memalign(alignment, bytes) : early_take(bytes, alignment);
}

SEEN_BY_LIBRARIES void *valloc(size_t bytes) {
  count(CALL_valloc);
  return found_next() ? next.valloc(bytes) : early_take(bytes, 4096);
}

/* mimalloc's library has one that goes past malloc. */
SEEN_BY_LIBRARIES char *strdup(const char *text) {
  count(CALL_strdup);
  if (found_next()) return next.strdup(text);
  size_t bytes = strlen(text) + 1;
  return memcpy(early_take(bytes, 1), text, bytes);
}

SEEN_BY_LIBRARIES void free(void *memory) {
  count(CALL_free);
  if (memory && !is_early(memory) && found_next()) next.free(memory);
}

SEEN_BY_LIBRARIES void *mi_malloc(size_t bytes) {
  count(CALL_mi_malloc);
  return found_next() ? next.mi_malloc(bytes) : early_take(bytes, 16);
}

SEEN_BY_LIBRARIES void mi_free(void *memory) {
  count(CALL_mi_free);
  if (!is_early(memory) && found_next()) next.mi_free(memory);
}

/* mimalloc maps memory before the linker is ready to be asked, so these go to the kernel directly. */
SEEN_BY_LIBRARIES void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
  count(CALL_mmap);
  return (void *)syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
}

SEEN_BY_LIBRARIES void *mmap64(void *at, size_t bytes, int protection, int flags, int file, off64_t offset) {
  count(CALL_mmap64);
  return (void *)syscall(SYS_mmap, at, bytes, protection, flags, file, offset);
}

SEEN_BY_LIBRARIES int munmap(void *memory, size_t bytes) {
  count(CALL_munmap);
  return (int)syscall(SYS_munmap, memory, bytes);
}

SEEN_BY_LIBRARIES void *mremap(void *memory, size_t old_bytes, size_t bytes, int flags, ...) {
  count(CALL_mremap);
  __builtin_va_list arguments;
  __builtin_va_start(arguments, flags);
  void *at = flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) ? __builtin_va_arg(arguments, void *) : NULL;
  __builtin_va_end(arguments);
  return (void *)syscall(SYS_mremap, memory, old_bytes, bytes, flags, at);
}

SEEN_BY_LIBRARIES int brk(void *end) {
  count(CALL_brk);
  return found_next() ? next.brk(end) : -1;
}

SEEN_BY_LIBRARIES void *sbrk(intptr_t bytes) {
  count(CALL_sbrk);
  return found_next() ? next.sbrk(bytes) : (void *)-1;
}

/* ---- On purpose -------------------------------------------------------------------------------------------------- */

const char *allocations_unseen(void) {
  enum { BYTES = 4096 };
  /* What is taken and given back unused would be left out by the compiler. */
  void *volatile memory;
  void *taken = NULL;
  allocations_count();
  memory = malloc(BYTES);
  memory = realloc(memory, (size_t)2 * BYTES);
  free(memory);
  free(memory = calloc(1, BYTES));
  free(memory = aligned_alloc(64, BYTES));
  if (posix_memalign(&taken, 64, BYTES) == 0) free(memory = taken);
  free(memory = memalign(64, BYTES));
  free(memory = valloc(BYTES));
  free(memory = strdup("text"));
  memory = mi_malloc(BYTES);
  mi_free(memory);
  memory = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memory = mremap(memory, BYTES, (size_t)2 * BYTES, MREMAP_MAYMOVE);
  munmap(memory, (size_t)2 * BYTES);
  memory = mmap64(NULL, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(memory, BYTES);
  if (brk(sbrk(0))) return names[CALL_brk];
  allocations_stop();
  for (int i = 0; i < ALLOCATION_CALL_COUNT; i++)
    if (!counts[i]) return names[i];
  return NULL;
}
