/* prove_bits.c - each replay gives the same bits, in both slots and over spoiled outputs, and a language model
 * generates the same text each time. A bit that is changed on purpose first has to show. */
#include <string.h>

#include "proof.h"

/* ---- bits_stay_the_same ------------------------------------------------------------------------------------------ */

struct bits {
  bool has_reference;
  uint64_t compared[SLOTS];
  int output; /* of the difference */
  uint64_t offset;
  uint32_t slot;
  unsigned char reference[OUTPUTS][OUTPUT_BYTES_MOST];
};

static bool compare_outputs(void *user, const struct subject *s, rondo_slot slot) {
  struct bits *bits = user;
  for (int i = 0; i < OUTPUTS; i++) {
    const unsigned char *data = rondo_data(slot, s->outputs[i]);
    uint64_t bytes = s->output_bytes[i];
    if (!bits->has_reference) memcpy(bits->reference[i], data, bytes);
    if (!memcmp(bits->reference[i], data, bytes)) continue;
    bits->output = i;
    bits->slot = slot.index;
    for (bits->offset = 0; bits->reference[i][bits->offset] == data[bits->offset];) bits->offset++;
    return false;
  }
  bits->has_reference = true;
  bits->compared[slot.index]++;
  return true;
}

/* The inputs anew, and in the outputs what no task left there. */
static void fill_and_spoil(const struct subject *s, rondo_slot slot) {
  subject_fill(s, slot);
  for (int i = 0; i < OUTPUTS; i++) memset(rondo_data(slot, s->outputs[i]), 0xa5, s->output_bytes[i]);
}

static void fill_but_one_bit(const struct subject *s, rondo_slot slot) {
  fill_and_spoil(s, slot);
  uint16_t *large = rondo_data(slot, s->large);
  large[LARGE_ROWS * SMALL_COUNT - 1] ^= 1;
}

void bits_stay_the_same(const struct proof *proof) {
  static struct bits bits;
  open_subject(proof, 0, usual_wait_mode(proof));
  for (int i = 0; i < OUTPUTS; i++)
    if (subject.output_bytes[i] > OUTPUT_BYTES_MOST) conclude(proof, FAILED, "output %d is too large", i);
  /* Once without comparing: the state is still zero. */
  CHECK(subject_replay(&subject, 1, fill_and_spoil, read_outputs, &output_sum));
  double begin = now_s();
  rondo_status status = subject_replay(&subject, proof->replays, fill_and_spoil, compare_outputs, &bits);
  if (status == RONDO_INTERNAL)
    conclude(proof, FAILED, "replay %ju, slot %u: output %d differs from byte %ju on",
             bits.compared[0] + bits.compared[1], bits.slot, bits.output, bits.offset);
  check(proof, status, "replay");
  double us = (now_s() - begin) * 1e6 / (double)proof->replays;
  /* The slot that ends first is compared first, so timing decides how many replays each of them has. */
  const bool both = bits.compared[0] > 0 && (bits.compared[1] > 0 || proof->replays == 1);
  if (bits.compared[0] + bits.compared[1] != proof->replays || !both)
    conclude(proof, FAILED, "compared %ju and %ju replays of the slots", bits.compared[0], bits.compared[1]);
  if (subject_replay(&subject, 1, fill_but_one_bit, compare_outputs, &bits) != RONDO_INTERNAL)
    conclude(proof, FAILED, "another input did not change the outputs");
  uint64_t bytes = 0;
  for (int i = 0; i < OUTPUTS; i++) bytes += subject.output_bytes[i];
  close_subject(proof);
  conclude(proof, PROVEN, "%ju replays, %ju and %ju in the slots, %ju bytes of outputs, %.1f us each", proof->replays,
           bits.compared[0], bits.compared[1], bytes, us);
}

/* ---- decoded_tokens_stay_the_same -------------------------------------------------------------------------------- */

/* The same text again and again. */
static void compare_texts(const struct proof *proof, struct decoder *decoder, uint64_t texts, uint64_t text_tokens) {
  static int32_t first[TEXT_TOKENS_MOST][DECODER_SEQUENCES_MOST];
  const size_t bytes = (size_t)decoder->sequences * sizeof *first[0];
  int changes = 0;
  for (uint64_t text = 0; text < texts; text++) {
    CHECK(decoder_restart(decoder));
    for (uint64_t t = 0; t < text_tokens; t++) {
      CHECK(decoder_replay(decoder, 1));
      if (!text) memcpy(first[t], decoder_tokens(decoder), bytes);
      if (memcmp(first[t], decoder_tokens(decoder), bytes) != 0)
        conclude(proof, FAILED, "decoder of %d, text %ju: token %ju differs", decoder->sequences, text, t);
      changes += t > 0 && memcmp(first[t], first[t - 1], bytes) != 0;
    }
  }
  if (!changes) conclude(proof, FAILED, "all tokens are the same: nothing is fed back");
}

void decoded_tokens_stay_the_same(const struct proof *proof) {
  uint64_t text_tokens = proof->tokens / TEXTS < TEXT_TOKENS_MOST ? proof->tokens / TEXTS : TEXT_TOKENS_MOST;
  uint64_t texts = proof->tokens / text_tokens;
  open_subject(proof, 0, usual_wait_mode(proof));
  for (int i = 0; i < DECODERS; i++) {
    struct decoder *decoder = open_decoder(proof, i, 0);
    compare_texts(proof, decoder, texts, text_tokens);
    CHECK(decoder_close(decoder));
  }
  close_subject(proof);
  conclude(proof, PROVEN, "%ju times %ju tokens of one sequence, and of each of %d", texts, text_tokens,
           DECODER_SEQUENCES_MOST);
}
