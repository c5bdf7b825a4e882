/* Combines the bytes with those of a key, its argument, over and over. What undoes it is itself. */
#include "weft_stage.h"

static unsigned char key[1 << 12];
static uint32_t key_len;
static uint32_t place;
static const char message[] = "the key is missing, or longer than 4095 bytes";

WEFT_INPUT

uint32_t weft_begin(unsigned char *arguments, uint32_t len) {
    if (len < 2 || len > sizeof key)
        return 1;
    key_len = len - 1;
    for (uint32_t at = 0; at < key_len; at++)
        key[at] = arguments[at];
    return 0;
}

weft_given weft_message(void) {
    return weft_give(message, sizeof message - 1, 0);
}

weft_given weft_advance(unsigned char *input, uint32_t len, uint32_t is_last) {
    (void)is_last;
    for (uint32_t at = 0; at < len; at++) {
        input[at] ^= key[place];
        place = place + 1 == key_len ? 0 : place + 1;
    }
    return weft_give(input, len, 0);
}
