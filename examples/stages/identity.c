/* Changes nothing. */
#include "weft_stage.h"

static char buffer[1 << 16];

void *weft_input(uint32_t wanted) {
    return wanted <= sizeof buffer ? buffer : 0;
}

weft_given weft_advance(uint32_t len, uint32_t is_last) {
    (void)is_last;
    return weft_give(buffer, len, 0);
}
