/* Small letters of ASCII become capital. */
#include "weft_stage.h"

WEFT_INPUT

weft_given weft_advance(unsigned char *input, uint32_t len, uint32_t is_last) {
    (void)is_last;
    for (uint32_t at = 0; at < len; at++) {
        unsigned char byte = input[at];
        input[at] = byte >= 'a' && byte <= 'z' ? byte - 32 : byte;
    }
    return weft_give(input, len, 0);
}
