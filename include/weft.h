/* libweft: files as ropes, and channels that pass ropes from one process to another by reference.
 *
 * A rope is bytes that never change, in one or more pieces. Files of a mounted volume are read as ropes that lie in memory which the daemon shares, other
 * files into memory of the process; whoever reads a rope need not care. Cutting, joining and sending ropes copies no bytes.
 *
 *     cc $(pkg-config --cflags weft) -o program program.c $(pkg-config --libs weft)
 *
 * Errors: functions that return a pointer return NULL and set errno; those that return an int return a negative errno. Besides what the system says there are EINVAL
 * (NULL, or a range or descriptor that is none), EIO (a bug in Weft), EBADMSG (what came is not Weft's), and those told below.
 *
 * Threads: functions of files and ropes may be called from any thread, also for the same file or rope at once, but for weft_close and weft_rope_release, after which nobody
 * uses it. A sender, a receiver and a place belong to one thread at a time. Calls wait through signals; they raise none (no SIGPIPE).
 *
 * Processes: after fork(2) only one of the two processes may use a file, rope, sender or receiver that was there before. Descriptors of weft_pipe may be inherited
 * until they are used. What a process has when it ends is given back.
 */
#ifndef WEFT_H
#define WEFT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_file weft_file;
typedef struct weft_rope weft_rope;
typedef struct weft_place weft_place;
typedef struct weft_sender weft_sender;
typedef struct weft_receiver weft_receiver;

/* The version of the library that the program runs with, such as "0.1.0". Libraries of one name (libweft.so.0) have all functions that older ones of it have. */
const char *weft_version(void);

/* Files */

/* Opens a file for reading. Errors: those of open(2). */
weft_file *weft_open(const char *path);

/* The file that `fd` is; it is closed with it from then on. On errors (EBADF) it stays the caller's. */
weft_file *weft_of_fd(int fd);

/* Closes `file`, which may be NULL. Ropes read from it stay. */
void weft_close(weft_file *file);

/* Up to `length` bytes from `offset` on: none at the end of the file, and else at least one. Errors: those of pread(2). */
weft_rope *weft_read(weft_file *file, uint64_t offset, size_t length);

/* Writes `rope` at `offset`; 0. Errors: those of pwrite(2). */
int weft_write(weft_file *file, uint64_t offset, const weft_rope *rope);

/* Ropes. Each that is returned is the caller's, and goes with weft_rope_release; what it was made from may go before. */

/* A copy of `length` bytes. */
weft_rope *weft_rope_of(const void *bytes, size_t length);

/* The same bytes again, not copied. */
weft_rope *weft_rope_dup(const weft_rope *rope);

/* Gives up `rope`, which may be NULL, and what points into it. */
void weft_rope_release(weft_rope *rope);

/* How many bytes it has; 0 for NULL. */
size_t weft_rope_length(const weft_rope *rope);

/* `length` of its bytes from `offset` on, not copied. Errors: EINVAL if there are fewer. */
weft_rope *weft_rope_slice(const weft_rope *rope, size_t offset, size_t length);

/* The bytes of `first`, then those of `second`, not copied. */
weft_rope *weft_rope_concat(const weft_rope *first, const weft_rope *second);

/* All its bytes in one piece, until it is released: where they lie if they lie together, else a copy, made once. Not NULL for a rope without bytes. */
const void *weft_rope_map(const weft_rope *rope);

/* How many pieces it has; none is empty. 0 for NULL. */
size_t weft_rope_pieces(const weft_rope *rope);

/* The piece `index`, counted from 0, until the rope is released; `length` is told how many bytes. Errors: EINVAL if there is none, and `length` is told 0. */
const void *weft_rope_piece(const weft_rope *rope, size_t index, size_t *length);

/* Channels */

/* A channel like pipe(2): fds[1] is for weft_sender_of, fds[0] for weft_receiver_of, in this process or in children that inherit them. Close the one that is not used, as with
 * pipes. 0. Errors: those of socketpair(2) and memfd_create(2). */
int weft_pipe(int fds[2]);

/* The sending end that `fd` is: used once, it is closed with the sender. On errors (EINVAL: it is none, or was used) it stays the caller's, but is no longer of use if it was one. */
weft_sender *weft_sender_of(int fd);

/* Memory to fill, so that it is sent without a copy; waits for memory that the receiver gives back if the sender has used up its own, 256 MiB.
 * Errors: ENOBUFS if the receiver keeps it all and waits for more; EPIPE if it is gone. */
weft_place *weft_sender_place(weft_sender *sender);

/* Where `place` lies; `length` is told how many bytes fit, at least 65536. NULL for NULL. */
void *weft_place_memory(weft_place *place, size_t *length);

/* The first `length` bytes of `place` as a rope, not copied; `place` is gone, whether or not this succeeds. Errors: EINVAL if there are fewer. */
weft_rope *weft_place_freeze(weft_place *place, size_t length);

/* Gives up `place`, which may be NULL. */
void weft_place_free(weft_place *place);

/* Sends `rope`, which stays the caller's; it is received as one rope. Waits as long as much was sent that was not received. 0.
 * Errors: EPIPE if the receiver is gone; ENOBUFS as for weft_sender_place: then nothing of the rope was sent, and other ropes can be. */
int weft_send(weft_sender *sender, const weft_rope *rope);

/* Says that this was all, and gives up `sender`, whether or not this succeeds. 0. Errors: EPIPE if the receiver is known to be gone before it received all. */
int weft_finish(weft_sender *sender);

/* Gives up `sender`, which may be NULL, without saying that this was all: the receiver gets an error after what was sent. */
void weft_sender_free(weft_sender *sender);

/* The receiving end that `fd` is, as weft_sender_of. */
weft_receiver *weft_receiver_of(int fd);

/* Waits for the next rope: 1, and `*rope` is the caller's; 0 after the last, and `*rope` is NULL. Its bytes lie in memory that the sender does not use before the
 * rope, and all that was made of it, is released. Errors, and `*rope` is NULL: ECONNRESET if the sender is gone and did not finish. */
int weft_receive(weft_receiver *receiver, weft_rope **rope);

/* Gives up `receiver`, which may be NULL. Ropes that were received stay. */
void weft_receiver_free(weft_receiver *receiver);

#ifdef __cplusplus
}
#endif

#endif
