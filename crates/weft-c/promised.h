/* The functions that libweft.so.0 has had since 0.1.0. What is here never changes, and new ones are added when a version has them: a library that has these
 * otherwise, or lacks one, is no libweft.so.0. tests/suites/packages compares weft.h and the library with it. */
#include <stddef.h>
#include <stdint.h>

typedef struct weft_file weft_file;
typedef struct weft_rope weft_rope;
typedef struct weft_place weft_place;
typedef struct weft_sender weft_sender;
typedef struct weft_receiver weft_receiver;
const char *weft_version(void);
weft_file *weft_open(const char *path);
weft_file *weft_of_fd(int fd);
void weft_close(weft_file *file);
weft_rope *weft_read(weft_file *file, uint64_t offset, size_t length);
int weft_write(weft_file *file, uint64_t offset, const weft_rope *rope);
weft_rope *weft_rope_of(const void *bytes, size_t length);
weft_rope *weft_rope_dup(const weft_rope *rope);
void weft_rope_release(weft_rope *rope);
size_t weft_rope_length(const weft_rope *rope);
weft_rope *weft_rope_slice(const weft_rope *rope, size_t offset, size_t length);
weft_rope *weft_rope_concat(const weft_rope *first, const weft_rope *second);
const void *weft_rope_map(const weft_rope *rope);
size_t weft_rope_pieces(const weft_rope *rope);
const void *weft_rope_piece(const weft_rope *rope, size_t index, size_t *length);
int weft_pipe(int fds[2]);
weft_sender *weft_sender_of(int fd);
weft_place *weft_sender_place(weft_sender *sender);
void *weft_place_memory(weft_place *place, size_t *length);
weft_rope *weft_place_freeze(weft_place *place, size_t length);
void weft_place_free(weft_place *place);
int weft_send(weft_sender *sender, const weft_rope *rope);
int weft_finish(weft_sender *sender);
void weft_sender_free(weft_sender *sender);
weft_receiver *weft_receiver_of(int fd);
int weft_receive(weft_receiver *receiver, weft_rope **rope);
void weft_receiver_free(weft_receiver *receiver);
