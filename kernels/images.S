/* images.S - the compiled device code inside the library, and the table of it that images.h declares. One line for each
 * .cu file; the fatbins are in out/device. */

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

image done
image copy
image transfer
image gemv
image quantize
image qr_apply
image qr_blocked
image qr_shared
image qr_triangular_inverse
image attention
image attention_combine
image gemm_softmax

  .section .data.rel.ro.device_images, "aw", @progbits
.Ltable_end:

  .section .rodata, "a", @progbits
  .balign 4
  .hidden device_image_count
  .globl device_image_count
device_image_count:
  .long (.Ltable_end - device_images) / 24

  .section .note.GNU-stack, "", @progbits
