/* seal.c - see seal.h. Seccomp: a filter of a few instructions that the kernel runs at every system call of the thread
 * (Documentation/userspace-api/seccomp_filter.rst). It asks for SIGSYS instead of death, so that the call can be
 * named; blocking that signal does not help, the kernel kills then. */
#include "seal.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#define THIS_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define THIS_ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

enum { BROKEN = 3, UNSEALED = 4 };

static struct breach *noted;

static const char *call_name(long number) {
  static const struct {
    long number;
    const char *name;
  } names[] = {{SYS_getppid, "getppid"},
               {SYS_futex, "futex"},
               {SYS_ioctl, "ioctl"},
               {SYS_clock_gettime, "clock_gettime"},
               {SYS_sched_yield, "sched_yield"},
               {SYS_nanosleep, "nanosleep"},
               {SYS_clock_nanosleep, "clock_nanosleep"},
               {SYS_mmap, "mmap"},
               {SYS_munmap, "munmap"},
               {SYS_madvise, "madvise"},
               {SYS_brk, "brk"},
               {SYS_read, "read"},
               {SYS_write, "write"},
               {SYS_ppoll, "ppoll"},
               {SYS_getpid, "getpid"},
               {SYS_gettid, "gettid"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].number == number) return names[i].name;
  return "another";
}

static void on_breach(int number, siginfo_t *info, void *context) {
  (void)number;
  (void)context;
  struct stack stack;
  stack_take(&stack);
  int used = snprintf(noted->text, sizeof noted->text, "system call %d (%s) by ", info->si_syscall,
                      call_name(info->si_syscall));
  stack_describe(&stack, noted->text + used, sizeof noted->text - (size_t)used);
  noted->number = info->si_syscall;
  _exit(BROKEN);
}

bool seal(struct breach *breach) {
  struct stack unused;
  stack_take(&unused);
  noted = breach;
  noted->number = -1;
  struct sigaction action = {.sa_sigaction = on_breach, .sa_flags = SA_SIGINFO};
  if (sigaction(SIGSYS, &action, NULL)) return false;
  struct sock_filter instructions[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, THIS_ARCHITECTURE, 0, 4),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {.len = sizeof instructions / sizeof *instructions, .filter = instructions};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return false;
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

bool survives_seal(void (*function)(void), struct breach *breach) {
  breach->number = -1;
  pid_t child = fork();
  if (child == 0) {
    if (!seal(breach)) _exit(UNSEALED);
    function();
    _exit(0);
  }
  int status = -1;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  return child > 0 && status == 0;
}
