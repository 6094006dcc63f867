/* one_image.S - one fatbin as a pair of symbols, NAME_fatbin and NAME_fatbin_end, for a program that brings a kernel of
 * its own to rondo_add_kernel. -DNAME=... says which; with -DNONE, where there is no nvcc, it is empty. */

.macro image name
  .section .rodata, "a", @progbits
  .balign 64
  .globl \name\()_fatbin
  .globl \name\()_fatbin_end
\name\()_fatbin:
#ifndef NONE
  .incbin "\name\().fatbin"
#endif
\name\()_fatbin_end:
  .byte 0
.endm

image NAME

  .section .note.GNU-stack, "", @progbits
