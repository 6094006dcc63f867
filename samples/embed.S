/* embed.S - a fatbin as a byte array, NAME_fatbin to NAME_fatbin_end, inside a program that brings a kernel of its own to
 * rondo_add_kernel. -DNAME=... names the fatbin; -DNONE, where there is no nvcc, makes it empty. (C23 has #embed for this,
 * and `xxd -i` writes an array for any C.) */

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
