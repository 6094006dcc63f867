/* text.c - see text.h. A character is valid UTF-8 and no control character. */
#include "text.h"

#include <stdbool.h>
#include <string.h>

uint32_t text_character_bytes(const char *text) {
  const unsigned char *at = (const unsigned char *)text;
  if (at[0] < 0x80) return at[0] >= 0x20 && at[0] != 0x7f;
  uint32_t count = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
  if (at[0] < 0xc2 || at[0] > 0xf4) return 0;
  uint32_t code = at[0] & (0xffu >> (count + 1));
  for (uint32_t i = 1; i < count; i++) {
    if ((at[i] & 0xc0) != 0x80) return 0; /* the end of the text too */
    code = code << 6 | (at[i] & 0x3fu);
  }
  bool is_overlong = (count == 3 && code < 0x800) || (count == 4 && code < 0x10000);
  bool is_forbidden = code < 0xa0 || (code >= 0xd800 && code < 0xe000) || (code & 0xfffe) == 0xfffe || code > 0x10ffff;
  return is_overlong || is_forbidden ? 0 : count;
}

void text_print(char *to, size_t bytes, const char *from) {
  size_t used = 0;
  while (*from) {
    uint32_t taken = text_character_bytes(from), written = taken ? taken : (uint32_t)strlen(TEXT_REPLACEMENT);
    if (used + written >= bytes) break;
    memcpy(to + used, taken ? from : TEXT_REPLACEMENT, written);
    used += written;
    from += taken ? taken : 1;
  }
  to[used] = '\0';
}

void text_write(FILE *file, const char *text, const char *escaped) {
  for (uint32_t bytes; *text; text += bytes ? bytes : 1) {
    bytes = text_character_bytes(text);
    if (strchr(escaped, *text)) fputc('\\', file);
    if (bytes)
      fwrite(text, 1, bytes, file);
    else
      fputs(TEXT_REPLACEMENT, file);
  }
}
