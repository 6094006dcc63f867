/* test_error_text.c - a thread's sentence about its last failure: it is the thread's own, stays until its next
 * failure, leaves nothing behind when the thread ends, and is never missing. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../runtime/status.h"
#include "../support.h"

enum { AT_ONCE = 64, IN_TURN = 10000, PLACES = 4096, TOO_MANY = PLACES + 8, STACK_BYTES = 128 * 1024 };

static pthread_barrier_t barrier;

static void *fail_and_look(void *argument) {
  char expected[64];
  cr_assert_str_empty(rondo_error_text());
  for (int round = 0; round < 100; round++) {
    snprintf(expected, sizeof expected, "thread %d fails for the %dth time", *(int *)argument, round);
    status_text("%s", expected);
    pthread_barrier_wait(&barrier);
    cr_assert_str_eq(rondo_error_text(), expected);
    status_text("after %s", rondo_error_text()); /* of the old text a new one may be made */
    cr_assert_str_eq(rondo_error_text() + 6, expected);
    pthread_barrier_wait(&barrier);
  }
  return NULL;
}

Test(error_text, is_the_threads_own) {
  pthread_t threads[AT_ONCE];
  int numbers[AT_ONCE];
  pthread_barrier_init(&barrier, NULL, AT_ONCE);
  for (int i = 0; i < AT_ONCE; i++) {
    numbers[i] = i;
    cr_assert_eq(pthread_create(&threads[i], NULL, fail_and_look, &numbers[i]), 0);
  }
  for (int i = 0; i < AT_ONCE; i++) pthread_join(threads[i], NULL);
}

static void *fail_once(void *argument) {
  (void)argument;
  status_text("one failure");
  return strcmp(rondo_error_text(), "one failure") ? (void *)1 : NULL;
}

Test(error_text, of_threads_that_have_ended_takes_no_place) {
  for (int i = 0; i < IN_TURN; i++) {
    pthread_t thread;
    void *differs = NULL;
    cr_assert_eq(pthread_create(&thread, NULL, fail_once, NULL), 0);
    pthread_join(thread, &differs);
    cr_assert_null(differs, "thread %d", i);
  }
}

Test(error_text, longer_than_there_is_room_for_is_cut) {
  char text[2000];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  status_text("%s", text);
  size_t length = strlen(rondo_error_text());
  cr_assert(length >= 500 && length < sizeof text, "%zu", length);
}

static atomic_int crowded_count;
static sem_t failed, may_end;

static void *fail_and_stay(void *argument) {
  (void)argument;
  status_text("one failure");
  if (strcmp(rondo_error_text(), "one failure") != 0) {
    cr_assert_not_null(strstr(rondo_error_text(), "no place is left for its text"), "%s", rondo_error_text());
    atomic_fetch_add(&crowded_count, 1);
  }
  sem_post(&failed);
  sem_wait(&may_end);
  return NULL;
}

/* The tests' own thread has a place too, once something failed there. */
Test(error_text, of_more_threads_than_there_are_places_says_so, .timeout = 240) {
  skip_under_valgrind("there are at most 500 threads");
  pthread_t *threads = malloc(TOO_MANY * sizeof *threads);
  pthread_attr_t small;
  int started = 0;
  sem_init(&failed, 0, 0);
  sem_init(&may_end, 0, 0);
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, STACK_BYTES);
  status_text("one failure");
  while (started < TOO_MANY && pthread_create(&threads[started], &small, fail_and_stay, NULL) == 0) {
    started++;
    sem_wait(&failed);
  }
  cr_assert_str_eq(rondo_error_text(), "one failure");
  for (int i = 0; i < started; i++) sem_post(&may_end);
  for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
  free(threads);
  if (started < TOO_MANY) cr_skip_test("the system gives a process %d threads and no more", started);
  cr_assert_eq(atomic_load(&crowded_count), TOO_MANY + 1 - PLACES);
}
