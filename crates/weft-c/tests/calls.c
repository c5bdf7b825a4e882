/* Calls every function of weft.h: see c.rs. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "calls.c:%d: %s (errno %d)\n", __LINE__, #condition, errno); \
            exit(1); \
        } \
    } while (0)

static int is(const weft_rope *rope, const char *text) {
    size_t length = weft_rope_length(rope);
    return length == strlen(text) && memcmp(weft_rope_map(rope), text, length) == 0;
}

static void version(void) {
    CHECK(strcmp(weft_version(), EXPECTED_VERSION) == 0);
}

static void ropes(void) {
    size_t length = 7;
    weft_rope *one = weft_rope_of("one ", 4), *two = weft_rope_of("two", 3), *none = weft_rope_of(NULL, 0);
    weft_rope *both = weft_rope_concat(one, two), *part = weft_rope_slice(both, 2, 4), *again = weft_rope_dup(part);
    CHECK(is(both, "one two") && is(part, "e tw") && is(none, "") && weft_rope_map(none) != NULL);
    CHECK(weft_rope_pieces(both) == 2 && weft_rope_pieces(none) == 0);
    CHECK(weft_rope_piece(both, 1, &length) == weft_rope_map(two) && length == 3);
    CHECK(weft_rope_map(both) == weft_rope_map(both));
    weft_rope_release(one);
    weft_rope_release(both);
    weft_rope_release(part);
    CHECK(is(again, "e tw"));
    CHECK(weft_rope_piece(two, 1, &length) == NULL && errno == EINVAL && length == 0);
    CHECK(weft_rope_slice(two, 2, 2) == NULL && weft_rope_slice(two, 2, SIZE_MAX) == NULL && errno == EINVAL);
    CHECK(weft_rope_of(NULL, 1) == NULL && weft_rope_dup(NULL) == NULL && weft_rope_concat(two, NULL) == NULL);
    CHECK(weft_rope_map(NULL) == NULL && weft_rope_length(NULL) == 0 && weft_rope_pieces(NULL) == 0);
    weft_rope_release(again);
    weft_rope_release(two);
    weft_rope_release(none);
    weft_rope_release(NULL);
}

static void files(const char *path) {
    weft_rope *rope = weft_rope_of("0123456789", 10), *read;
    weft_file *file = weft_of_fd(open(path, O_RDWR | O_CREAT, 0600));
    CHECK(file != NULL && weft_write(file, 5, rope) == 0);
    weft_close(file);
    file = weft_open(path);
    CHECK(file != NULL && weft_write(file, 0, rope) == -EBADF);
    read = weft_read(file, 12, 100);
    CHECK(is(read, "789"));
    weft_rope_release(read);
    read = weft_read(file, 15, 100);
    CHECK(read != NULL && weft_rope_length(read) == 0);
    weft_rope_release(read);
    weft_rope_release(rope);
    weft_close(file);
    weft_close(NULL);
    CHECK(weft_open("/no/such/file") == NULL && errno == ENOENT);
    CHECK(weft_open(NULL) == NULL && errno == EINVAL);
    CHECK(weft_of_fd(-1) == NULL && errno == EBADF);
    CHECK(weft_of_fd(9999) == NULL && errno == EBADF);
    CHECK(weft_read(NULL, 0, 1) == NULL && errno == EINVAL && weft_write(NULL, 0, NULL) == -EINVAL);
}

static void channels(void) {
    int fds[2], other[2];
    size_t length = 0;
    char *memory;
    weft_rope *rope = weft_rope_of("copied", 6), *received;
    weft_sender *sender;
    weft_receiver *receiver;
    weft_place *place;
    CHECK(weft_pipe(fds) == 0 && weft_pipe(NULL) == -EINVAL);
    CHECK(fcntl(fds[0], F_GETFD) == 0 && fcntl(fds[1], F_GETFD) == 0);
    sender = weft_sender_of(fds[1]);
    receiver = weft_receiver_of(fds[0]);
    CHECK(sender != NULL && receiver != NULL && fcntl(fds[1], F_GETFD) == -1);
    place = weft_sender_place(sender);
    memory = weft_place_memory(place, &length);
    CHECK(memory != NULL && length >= 65536);
    memcpy(memory, "in place", 8);
    received = weft_place_freeze(place, 8);
    CHECK(is(received, "in place") && weft_send(sender, received) == 0 && weft_send(sender, rope) == 0);
    weft_rope_release(received);
    CHECK(weft_place_freeze(weft_sender_place(sender), length + 1) == NULL && errno == EINVAL);
    weft_place_free(weft_sender_place(sender));
    weft_place_free(NULL);
    CHECK(weft_finish(sender) == 0);
    CHECK(weft_receive(receiver, &received) == 1 && is(received, "in place"));
    weft_rope_release(received);
    CHECK(weft_receive(receiver, &received) == 1 && is(received, "copied"));
    weft_rope_release(received);
    CHECK(weft_receive(receiver, &received) == 0 && received == NULL);
    weft_receiver_free(receiver);

    /* One end goes. */
    CHECK(weft_pipe(fds) == 0);
    sender = weft_sender_of(fds[1]);
    receiver = weft_receiver_of(fds[0]);
    weft_sender_free(sender);
    CHECK(weft_receive(receiver, &received) == -ECONNRESET && received == NULL);
    weft_receiver_free(receiver);
    CHECK(weft_pipe(fds) == 0);
    sender = weft_sender_of(fds[1]);
    close(fds[0]);
    while (weft_send(sender, rope) == 0) {
    }
    CHECK(weft_send(sender, rope) == -EPIPE && weft_sender_place(sender) == NULL && errno == EPIPE);
    CHECK(weft_finish(sender) == -EPIPE);

    /* What is no end, or the other one. */
    CHECK(pipe(other) == 0 && weft_sender_of(other[1]) == NULL && errno == ENOTSOCK);
    CHECK(fcntl(other[1], F_GETFD) != -1 && weft_receiver_of(-1) == NULL && errno == EBADF);
    CHECK(weft_pipe(fds) == 0 && weft_sender_of(fds[0]) == NULL && errno == EINVAL);
    CHECK(weft_send(NULL, rope) == -EINVAL && weft_finish(NULL) == -EINVAL && weft_receive(NULL, &received) == -EINVAL);
    CHECK(weft_sender_place(NULL) == NULL && weft_place_memory(NULL, &length) == NULL && weft_place_freeze(NULL, 0) == NULL);
    weft_sender_free(NULL);
    weft_receiver_free(NULL);
    weft_rope_release(rope);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    version();
    ropes();
    files(argv[1]);
    channels();
    puts("all calls keep their word");
    return 0;
}
