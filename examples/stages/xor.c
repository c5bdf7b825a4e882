/* Combines the bytes with those of a key, its argument, over and over. What undoes it is itself. */
#include "weft_stage.h"

static unsigned char buffer[1 << 16];
static unsigned char key[1 << 12] = {0};
static uint32_t key_len = 1;
static uint32_t place;
static const char message[] = "the key is missing, or longer than 4095 bytes";

void *weft_input(uint32_t wanted) {
    return wanted <= sizeof buffer ? buffer : 0;
}

uint32_t weft_begin(uint32_t len) {
    if (len < 2 || len > sizeof key)
        return 1;
    key_len = len - 1;
    for (uint32_t at = 0; at < key_len; at++)
        key[at] = buffer[at];
    return 0;
}

weft_given weft_message(void) {
    return weft_give(message, sizeof message - 1, 0);
}

weft_given weft_advance(uint32_t len, uint32_t is_last) {
    (void)is_last;
    for (uint32_t at = 0; at < len; at++) {
        buffer[at] ^= key[place];
        place = place + 1 == key_len ? 0 : place + 1;
    }
    return weft_give(buffer, len, 0);
}
