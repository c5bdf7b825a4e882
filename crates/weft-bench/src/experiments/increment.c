/* Adds 1 to each byte from the standard input to the standard output: increment [BYTES OF ITS PIPES]. What weft's stage is compared to. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static unsigned char bytes[1 << 16];

int main(int argc, char **argv)
{
    ssize_t len;

    if (argc > 1) {
        fcntl(0, F_SETPIPE_SZ, atoi(argv[1]));
        fcntl(1, F_SETPIPE_SZ, atoi(argv[1]));
    }
    while ((len = read(0, bytes, sizeof bytes)) > 0) {
        unsigned char *next = bytes;

        for (ssize_t at = 0; at < len; at++)
            bytes[at]++;
        while (len > 0) {
            ssize_t written = write(1, next, len);

            if (written < 0)
                return 1;
            next += written;
            len -= written;
        }
    }
    return len < 0;
}
