/*
 * A stage of a network of Weft, in C: the same source becomes a WebAssembly module (`wasm` in a network) or a shared library (`library`).
 * docs/networks.md tells what the functions must do. Two are needed, weft_input and weft_advance.
 */
#ifndef WEFT_STAGE_H
#define WEFT_STAGE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __wasm__
#define WEFT_STAGE(name) __attribute__((export_name(#name)))
typedef uint64_t weft_given;
#else
#define WEFT_STAGE(name) __attribute__((visibility("default")))
typedef struct {
    const void *at;
    uint64_t count_and_flags;
} weft_given;
#endif

/* Flags: there is more to come of what was taken, so call again before there is other input; nothing will come any more. */
#define WEFT_AGAIN (UINT64_C(1) << 30)
#define WEFT_ENDED (UINT64_C(1) << 31)

/* Says that `count` bytes (below 2^30) lie at `at`, where they stay until the next call. */
static inline weft_given weft_give(const void *at, uint32_t count, uint64_t flags) {
#ifdef __wasm__
    return (uint64_t)(uintptr_t)at << 32 | flags | count;
#else
    weft_given given = {at, flags | count};
    return given;
#endif
}

/* Says that the stage cannot go on; weft_message may tell why. */
static inline weft_given weft_fail(void) {
#ifdef __wasm__
    return UINT64_MAX;
#else
    weft_given given = {0, UINT64_MAX};
    return given;
#endif
}

/* Where `wanted` bytes of input may be put, for the next call. */
WEFT_STAGE(weft_input) void *weft_input(uint32_t wanted);

/* Takes the `len` bytes that were put there; nothing comes after them if `is_last` is not 0. Tells what it gives for them. */
WEFT_STAGE(weft_advance) weft_given weft_advance(uint32_t len, uint32_t is_last);

/* Optional. Takes arguments, each ended by a NUL: `len` bytes, put where input goes. Other than 0: they make no sense. */
WEFT_STAGE(weft_begin) uint32_t weft_begin(uint32_t len);

/* Optional. Why it has failed: text. */
WEFT_STAGE(weft_message) weft_given weft_message(void);

#ifdef __cplusplus
}
#endif

#endif
