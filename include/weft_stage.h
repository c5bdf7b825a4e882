/*
 * A stage of a network of Weft, in C: a WebAssembly module, for `wasm` in a network, or a shared library, for `library`, from the same source. docs/reference/abi.md tells
 * what the functions must do; a module needs two, weft_input, for which there is WEFT_INPUT, and weft_advance; a library needs weft_advance.
 *
 *     clang --target=wasm32 -O3 -nostdlib -fno-builtin -Wl,--no-entry -I DIRECTORY_OF_THIS -o stage.wasm stage.c
 *     cc -shared -fPIC -O3 -I DIRECTORY_OF_THIS -o stage.so stage.c
 */
#ifndef WEFT_STAGE_H
#define WEFT_STAGE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Flags: there is more to come of what was taken, so call again before there is other input; nothing will come any more. */
#define WEFT_AGAIN (UINT64_C(1) << 30)
#define WEFT_ENDED (UINT64_C(1) << 31)

#ifdef __wasm__

#define WEFT_STAGE(name) __attribute__((export_name(#name)))

/* Bytes of input at once, at most. */
#define WEFT_INPUT_MAX 65536

/* Where some bytes lie, and how many they are: what weft_give makes. */
typedef uint64_t weft_given;

/* Says that `count` bytes (below 2^30) lie at `at`, where they stay until the next call. */
static inline weft_given weft_give(const void *at, uint32_t count, uint64_t flags) {
    return (uint64_t)(uintptr_t)at << 32 | flags | count;
}

/* Says that the stage cannot go on; weft_message may tell why. */
static inline weft_given weft_fail(void) {
    return UINT64_MAX;
}

#else

#define WEFT_STAGE(name) __attribute__((visibility("default")))
#define WEFT_INPUT_MAX 262144

typedef struct {
    const void *at;
    uint64_t told;
} weft_given;

static inline weft_given weft_give(const void *at, uint32_t count, uint64_t flags) {
    weft_given given = {at, flags | count};
    return given;
}

static inline weft_given weft_fail(void) {
    weft_given given = {0, UINT64_MAX};
    return given;
}

#endif

/* Of a module: where `wanted` bytes may be put, for the next call: input, or arguments, which may be longer. */
WEFT_STAGE(weft_input) unsigned char *weft_input(uint32_t wanted);

/* A weft_input of one buffer; a library needs none. Longer arguments are refused, as they do not fit into memory at its very end. */
#ifdef __wasm__
#define WEFT_INPUT                                                             \
    unsigned char *weft_input(uint32_t wanted) {                               \
        static unsigned char buffer[WEFT_INPUT_MAX];                           \
        return wanted <= sizeof buffer ? buffer : (unsigned char *)UINTPTR_MAX; \
    }
#else
#define WEFT_INPUT
#endif

/* Takes `len` bytes of input, which it may change; nothing comes after them if `is_last` is not 0. Tells what it gives for them. */
WEFT_STAGE(weft_advance) weft_given weft_advance(unsigned char *input, uint32_t len, uint32_t is_last);

/* Optional. Takes arguments: `len` bytes, each argument ended by a NUL. Other than 0: they make no sense. */
WEFT_STAGE(weft_begin) uint32_t weft_begin(unsigned char *arguments, uint32_t len);

/* Optional. Why it has failed: text. */
WEFT_STAGE(weft_message) weft_given weft_message(void);

#ifdef __cplusplus
}
#endif

#endif
