/* embed.S - a fatbin as a byte array, NAME_fatbin to NAME_fatbin_end, in a program with own kernels (rondo_add_kernel).
 * -DNAME=... is the name of the fatbin. -DNONE makes the array empty, for builds without nvcc. (C23 has #embed for this, and
 * `xxd -i` writes an array for any C.) */

.macro embed name
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

embed NAME

  .section .note.GNU-stack, "", @progbits
