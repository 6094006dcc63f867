/* utf8.c - recognises UTF-8 (utf8.h). Well-formed sequences are those of table 3-7 of the Unicode Standard. In other
 * bytes each maximal subpart is replaced, as section 3.9 of the standard recommends. */
#include "utf8.h"

#include <string.h>

enum { REPLACEMENT_BYTES = 3 };

/* After some first bytes, fewer second bytes are allowed: no overlong forms, no surrogates, nothing beyond U+10FFFF. */
static bool may_follow(uint8_t first, uint32_t position, uint8_t byte) {
  uint8_t low = 0x80, high = 0xbf;
  if (position == 1) {
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
  }
  return byte >= low && byte <= high;
}

struct utf8_sequence utf8_at(const char *bytes, size_t count) {
  uint8_t first = (uint8_t)bytes[0];
  uint32_t length = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (length == 0) return (struct utf8_sequence){UTF8_INVALID, 1};
  for (uint32_t i = 1; i < length; i++) {
    if (i == count) return (struct utf8_sequence){UTF8_CUT, i};
    if (!may_follow(first, i, (uint8_t)bytes[i])) return (struct utf8_sequence){UTF8_INVALID, i};
  }
  return (struct utf8_sequence){UTF8_WHOLE, length};
}

uint32_t utf8_code(const char *bytes, uint32_t length) {
  uint32_t code = length == 1 ? (uint8_t)bytes[0] : (uint8_t)bytes[0] & (0x7fu >> length);
  for (uint32_t i = 1; i < length; i++) code = code << 6 | ((uint8_t)bytes[i] & 0x3f);
  return code;
}

size_t utf8_put(uint32_t code, char bytes[4]) {
  uint32_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (uint32_t i = length - 1; i > 0; i--, code >>= 6) bytes[i] = (char)(0x80 | (code & 0x3f));
  bytes[0] = (char)(length == 1 ? code : (0xf00u >> length & 0xff) | code);
  return length;
}

static size_t replace(char *out) {
  memcpy(out, "\xef\xbf\xbd", REPLACEMENT_BYTES);
  return REPLACEMENT_BYTES;
}

/* Is a whole character a command for a terminal? U+0080 to U+009F are the bytes c2 80 to c2 9f. */
static bool steers_a_terminal(const char *bytes) {
  uint8_t first = (uint8_t)bytes[0];
  return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f ||
         (first == 0xc2 && (uint8_t)bytes[1] < 0xa0);
}

size_t utf8_pass(struct utf8_stream *stream, const char *bytes, size_t count, char *out) {
  size_t written = 0;
  for (size_t i = 0; i < count; i++) {
    stream->held[stream->count++] = bytes[i];
    while (stream->count > 0) {
      struct utf8_sequence sequence = utf8_at(stream->held, stream->count);
      if (sequence.state == UTF8_CUT) break;
      if (sequence.state == UTF8_INVALID || (!stream->controls_pass && steers_a_terminal(stream->held))) {
        written += replace(out + written);
      } else {
        memcpy(out + written, stream->held, sequence.length);
        written += sequence.length;
      }
      stream->count -= sequence.length;
      memmove(stream->held, stream->held + sequence.length, stream->count);
    }
  }
  return written;
}

size_t utf8_end(struct utf8_stream *stream, char *out) {
  if (stream->count == 0) return 0;
  stream->count = 0;
  return replace(out);
}
