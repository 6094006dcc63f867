/* images.S - the compiled device code inside the library, and the table of it that runtime/kernels.h declares.
 *
 * images.list, which the build writes, has a line for each .cu file, image "kernels/copy/copy", and after it a line
 * for each of the file's kernels, kernel "rondo_copy". With SHARED other files of a program see the table: programs
 * that link the private archive share it (build/programs.ninja). */

.macro image file
  .section .rodata.device_images, "a", @progbits
  .balign 64
.Lbegin\@:
  .incbin "\file\().fatbin"
.Lend\@:
.Lname\@:
  .asciz "\file\().cu"
  .section .rodata.device_kernels, "a", @progbits
  .byte 0 /* ends the list before */
.Lkernels\@:
  .section .data.rel.ro.device_images, "aw", @progbits
  .quad .Lname\@, .Lbegin\@, .Lend\@, .Lkernels\@ /* struct device_image */
.endm

.macro kernel name
  .section .rodata.device_kernels, "a", @progbits
  .asciz "\name"
.endm

  .section .data.rel.ro.device_images, "aw", @progbits
  .balign 8
.ifndef SHARED
  .hidden device_images
.endif
  .globl device_images
  .type device_images, @object
device_images:

  .include "images.list"

  .section .rodata.device_kernels, "a", @progbits
  .byte 0

  .section .data.rel.ro.device_images, "aw", @progbits
.Ltable_end:
  .size device_images, . - device_images

  .section .rodata, "a", @progbits
  .balign 4
.ifndef SHARED
  .hidden device_image_count
.endif
  .globl device_image_count
  .type device_image_count, @object
  .size device_image_count, 4
device_image_count:
  .long (.Ltable_end - device_images) / 32

  .section .note.GNU-stack, "", @progbits
