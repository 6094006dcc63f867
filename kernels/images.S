/* images.S - the compiled device code inside the library, and the table of it that runtime/kernels.h declares. images.o.list,
 * which the build writes, has a line for each .cu file: image "kernels/copy/copy". */

.macro image file
  .section .rodata.device_images, "a", @progbits
  .balign 64
.Lbegin\@:
  .incbin "\file\().fatbin"
.Lend\@:
.Lname\@:
  .asciz "\file\().cu"
  .section .data.rel.ro.device_images, "aw", @progbits
  .quad .Lname\@, .Lbegin\@, .Lend\@ /* struct device_image */
.endm

  .section .data.rel.ro.device_images, "aw", @progbits
  .balign 8
  .hidden device_images
  .globl device_images
device_images:

  .include "images.o.list"

  .section .data.rel.ro.device_images, "aw", @progbits
.Ltable_end:

  .section .rodata, "a", @progbits
  .balign 4
  .hidden device_image_count
  .globl device_image_count
device_image_count:
  .long (.Ltable_end - device_images) / 24

  .section .note.GNU-stack, "", @progbits
