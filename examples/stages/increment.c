/* Adds a number, 1 unless it is given as argument, to each byte. */
#include "weft_stage.h"

static unsigned char amount = 1;
static const char message[] = "the amount is no number";

WEFT_INPUT

uint32_t weft_begin(unsigned char *arguments, uint32_t len) {
    if (len > 0)
        amount = 0;
    for (uint32_t at = 0; at + 1 < len; at++) {
        if (arguments[at] < '0' || arguments[at] > '9')
            return 1;
        amount = (unsigned char)(amount * 10 + (arguments[at] - '0'));
    }
    return 0;
}

weft_given weft_message(void) {
    return weft_give(message, sizeof message - 1, 0);
}

weft_given weft_advance(unsigned char *input, uint32_t len, uint32_t is_last) {
    (void)is_last;
    for (uint32_t at = 0; at < len; at++)
        input[at] += amount;
    return weft_give(input, len, 0);
}
