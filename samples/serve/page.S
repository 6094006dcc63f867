/* page.S - the page at / as a byte array. */

  .section .rodata, "a", @progbits
  .globl page_html
  .globl page_html_end
page_html:
  .incbin "samples/serve/page.html"
page_html_end:
  .byte 0

  .section .note.GNU-stack, "", @progbits
