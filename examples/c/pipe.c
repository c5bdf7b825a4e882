/* One process makes numbers, another adds them up; none is copied on the way. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft.h>

enum { ROPES = 1000 };

static int fail(const char *what, int status) {
    fprintf(stderr, "pipe: %s: %s\n", what, strerror(-status));
    return 1;
}

static int produce(int fd) {
    uint64_t next = 0;
    int rope_number, status;
    weft_sender *sender = weft_sender_of(fd);
    if (sender == NULL) {
        perror("pipe: the sending end");
        return 1;
    }
    for (rope_number = 0; rope_number < ROPES; rope_number++) {
        size_t length, number;
        weft_place *place = weft_sender_place(sender);
        uint64_t *numbers = weft_place_memory(place, &length);
        weft_rope *rope;
        if (numbers == NULL) {
            perror("pipe: memory to fill");
            weft_sender_free(sender);
            return 1;
        }
        for (number = 0; number < length / sizeof *numbers; number++) {
            numbers[number] = next++;
        }
        rope = weft_place_freeze(place, number * sizeof *numbers);
        status = weft_send(sender, rope);
        weft_rope_release(rope);
        if (status < 0) {
            weft_sender_free(sender);
            return fail("sending", status);
        }
    }
    status = weft_finish(sender);
    return status < 0 ? fail("finishing", status) : 0;
}

static int consume(int fd) {
    uint64_t sum = 0, count = 0;
    int status;
    weft_rope *rope;
    weft_receiver *receiver = weft_receiver_of(fd);
    if (receiver == NULL) {
        perror("pipe: the receiving end");
        return 1;
    }
    while ((status = weft_receive(receiver, &rope)) > 0) {
        const uint64_t *numbers = weft_rope_map(rope);
        size_t number, here = weft_rope_length(rope) / sizeof *numbers;
        for (number = 0; number < here; number++) {
            sum += numbers[number];
        }
        count += here;
        weft_rope_release(rope);
    }
    weft_receiver_free(receiver);
    if (status < 0) {
        return fail("receiving", status);
    }
    printf("%llu numbers, sum %s\n", (unsigned long long)count, sum == count * (count - 1) / 2 ? "right" : "wrong");
    return 0;
}

int main(void) {
    int fds[2], result, child_status = 1;
    int status = weft_pipe(fds);
    pid_t child;
    if (status < 0) {
        return fail("a channel", status);
    }
    child = fork();
    if (child < 0) {
        perror("pipe: fork");
        return 1;
    }
    if (child == 0) {
        close(fds[0]);
        _exit(produce(fds[1]));
    }
    close(fds[1]);
    result = consume(fds[0]);
    if (waitpid(child, &child_status, 0) != child || child_status != 0) {
        fputs("pipe: the producer failed\n", stderr);
        return 1;
    }
    return result;
}
