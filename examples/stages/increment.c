/* Adds a number, 1 unless it is given as argument, to each byte. */
#include "weft_stage.h"

static unsigned char buffer[1 << 16];
static unsigned char amount = 1;
static const char message[] = "the amount is no number";

void *weft_input(uint32_t wanted) {
    return wanted <= sizeof buffer ? buffer : 0;
}

uint32_t weft_begin(uint32_t len) {
    if (len > 0)
        amount = 0;
    for (uint32_t at = 0; at + 1 < len; at++) {
        if (buffer[at] < '0' || buffer[at] > '9')
            return 1;
        amount = (unsigned char)(amount * 10 + (buffer[at] - '0'));
    }
    return 0;
}

weft_given weft_message(void) {
    return weft_give(message, sizeof message - 1, 0);
}

weft_given weft_advance(uint32_t len, uint32_t is_last) {
    (void)is_last;
    for (uint32_t at = 0; at < len; at++)
        buffer[at] += amount;
    return weft_give(buffer, len, 0);
}
