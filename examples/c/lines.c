/* Counts the lines of a file, piece by piece where they lie. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <weft.h>

static unsigned long long newlines(const char *at, size_t length) {
    unsigned long long count = 0;
    const char *end = at + length;
    while (at < end && (at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        count++;
        at++;
    }
    return count;
}

int main(int argc, char **argv) {
    unsigned long long lines = 0;
    uint64_t offset = 0;
    size_t length, piece, piece_length;
    weft_file *file = argc == 2 ? weft_open(argv[1]) : NULL;
    if (file == NULL) {
        fprintf(stderr, "lines: %s\n", argc == 2 ? strerror(errno) : "tell one file");
        return 1;
    }
    do {
        weft_rope *rope = weft_read(file, offset, 1 << 20);
        if (rope == NULL) {
            fprintf(stderr, "lines: %s: %s\n", argv[1], strerror(errno));
            weft_close(file);
            return 1;
        }
        for (piece = 0; piece < weft_rope_pieces(rope); piece++) {
            const char *bytes = weft_rope_piece(rope, piece, &piece_length);
            lines += newlines(bytes, piece_length);
        }
        length = weft_rope_length(rope);
        offset += length;
        weft_rope_release(rope);
    } while (length > 0);
    weft_close(file);
    printf("%llu\n", lines);
    return 0;
}
